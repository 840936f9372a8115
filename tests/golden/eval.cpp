// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/eval.h"

#include <cmath>
#include <sstream>

namespace kiln::golden {

namespace {

[[noreturn]] void unsupported(const std::string& what) { throw Unsupported(what); }

const Function* find_function(std::string_view name) {
  for (const auto& table :
       {activation_functions(), elementwise_functions(), image_functions(), index_functions(),
        linalg_functions(), loss_functions(), math_functions(), nn_functions(), reduction_functions(),
        sequence_functions(), shape_functions()})
    for (const Function& f : table)
      if (f.name == name) return &f;
  return nullptr;
}

struct Parameter {
  std::string name;
  Value fallback;
};

std::vector<Parameter> parameters(std::string_view text) {
  std::vector<Parameter> out;
  std::istringstream words{std::string(text)};
  std::string word;
  while (words >> word) {
    const size_t eq = word.find('=');
    Parameter p{word.substr(0, eq), {}};
    if (eq != std::string::npos) p.fallback = evaluate(*parse_expression(word.substr(eq + 1)), {});
    out.push_back(std::move(p));
  }
  return out;
}

Bound bind(const Function& f, std::vector<Value> positional, std::map<std::string, Value> keywords) {
  const std::vector<Parameter> params = parameters(f.params);
  if (positional.size() > params.size()) unsupported(std::string(f.name) + ": too many arguments");
  Bound bound;
  for (size_t i = 0; i < params.size(); ++i) {
    const auto it = keywords.find(params[i].name);
    Value v = params[i].fallback;
    if (i < positional.size()) v = std::move(positional[i]);
    if (it != keywords.end()) {
      v = std::move(it->second);
      keywords.erase(it);
    }
    bound.set(params[i].name, std::move(v));
  }
  if (!keywords.empty()) unsupported(std::string(f.name) + ": argument " + keywords.begin()->first);
  return bound;
}

Value call_named(const std::string& name, std::vector<Value> positional,
                 std::map<std::string, Value> keywords) {
  const Function* f = find_function(name);
  if (!f) unsupported(name);
  return f->run(bind(*f, std::move(positional), std::move(keywords)));
}

Value constant(const std::string& name) {
  if (name == "None") return {};
  if (name == "True") return true;
  if (name == "False") return false;
  const std::pair<const char*, DType> types[] = {
      {"torch.float16", DType::f16}, {"torch.bfloat16", DType::bf16}, {"torch.float32", DType::f32},
      {"torch.float64", DType::f64}, {"torch.int64", DType::i64},     {"torch.int32", DType::i32},
      {"torch.uint8", DType::u8},    {"torch.bool", DType::boolean}};
  for (const auto& [text, dtype] : types)
    if (name == text) return dtype;
  unsupported(name);
}

Value attribute(const Value& base, const std::string& name) {
  if (name == "dtype") return base.tensor().dtype();
  if (name == "shape") {
    List sizes;
    for (const int64_t s : base.tensor().sizes()) sizes.emplace_back(s);
    return sizes;
  }
  unsupported("." + name);
}

Value call(const Node& n, const Variables& variables) {
  std::vector<Value> positional;
  std::map<std::string, Value> keywords;
  const Node& callee = *n.kids[0];
  std::string name = callee.text;
  if (callee.kind == Node::Kind::attribute) {
    name = "torch." + name;
    positional.push_back(evaluate(*callee.kids[0], variables));
    if (!find_function(name)) name = "." + callee.text;
  } else if (callee.kind != Node::Kind::name) {
    unsupported("a call of an expression");
  }
  for (size_t i = 1; i < n.kids.size(); ++i) {
    Value v = evaluate(*n.kids[i], variables);
    if (n.keywords[i - 1].empty()) {
      positional.push_back(std::move(v));
    } else {
      keywords[n.keywords[i - 1]] = std::move(v);
    }
  }
  return call_named(name, std::move(positional), std::move(keywords));
}

List values(const std::vector<NodePtr>& kids, const Variables& variables, size_t from = 0) {
  List out;
  for (size_t i = from; i < kids.size(); ++i)
    out.push_back(kids[i] ? evaluate(*kids[i], variables) : Value());
  return out;
}

}  // namespace

const Value& Bound::operator[](std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) unsupported("a row without the parameter " + std::string(name));
  return it->second;
}

Value slice_value(Value begin, Value end, Value step) {
  return List{std::string(":"), std::move(begin), std::move(end), std::move(step)};
}

Value evaluate(const Node& n, const Variables& variables) {
  using Kind = Node::Kind;
  switch (n.kind) {
    case Kind::integer: return n.integer;
    case Kind::real: return n.real;
    case Kind::string: return n.text;
    case Kind::ellipsis: return Ellipsis{};
    case Kind::name: {
      const auto it = variables.find(n.text);
      return it != variables.end() ? it->second : constant(n.text);
    }
    case Kind::attribute: return attribute(evaluate(*n.kids[0], variables), n.text);
    case Kind::call: return call(n, variables);
    case Kind::subscript: return index_value(evaluate(*n.kids[0], variables), values(n.kids, variables, 1));
    case Kind::slice: {
      List parts = values(n.kids, variables);
      return slice_value(parts[0], parts[1], parts[2]);
    }
    case Kind::tuple:
    case Kind::list: return values(n.kids, variables);
    case Kind::unary: return unary_operator(n.text, evaluate(*n.kids[0], variables));
    case Kind::binary:
      return binary_operator(n.text, evaluate(*n.kids[0], variables), evaluate(*n.kids[1], variables));
  }
  unsupported("an unknown node");
}

const Tensor& Value::tensor() const {
  if (const auto* t = std::get_if<Tensor>(&v)) return *t;
  unsupported("a value where a tensor is expected");
}

Tensor Value::tensor_or_undefined() const { return none() ? Tensor() : tensor(); }

int64_t Value::integer() const {
  if (const auto* i = std::get_if<int64_t>(&v)) return *i;
  if (const auto* b = std::get_if<bool>(&v)) return *b ? 1 : 0;
  unsupported("a value where an integer is expected");
}

double Value::real() const {
  if (const auto* d = std::get_if<double>(&v)) return *d;
  return static_cast<double>(integer());
}

bool Value::flag() const { return integer() != 0; }

const std::string& Value::text() const {
  if (const auto* s = std::get_if<std::string>(&v)) return *s;
  unsupported("a value where a string is expected");
}

std::vector<int64_t> Value::integers() const {
  if (none()) return {};
  if (!is<List>()) return {integer()};
  std::vector<int64_t> out;
  for (const Value& x : std::get<List>(v)) out.push_back(x.integer());
  return out;
}

std::vector<Tensor> Value::tensors() const {
  if (!is<List>()) return {tensor()};
  std::vector<Tensor> out;
  for (const Value& x : std::get<List>(v)) out.push_back(x.tensor());
  return out;
}

TensorArg operand(const Value& v) {
  if (v.is<Tensor>()) return TensorArg(std::get<Tensor>(v.v));
  if (v.is<double>()) return TensorArg(std::get<double>(v.v));
  if (v.is<bool>()) return TensorArg(std::get<bool>(v.v));
  return TensorArg(v.integer());
}

Reduction reduction_of(const Value& v) {
  if (v.text() == "mean") return Reduction::mean;
  if (v.text() == "sum") return Reduction::sum;
  if (v.text() == "none") return Reduction::none;
  throw Unsupported("reduction " + v.text());
}

List list_of(std::vector<Tensor> tensors) {
  List out;
  for (Tensor& t : tensors) out.emplace_back(std::move(t));
  return out;
}

std::vector<int64_t> sizes_of(const Bound& b) {
  if (b["a"].is<List>()) return b["a"].integers();
  std::vector<int64_t> out;
  for (const char* name : {"a", "b", "c", "d", "e"})
    if (b.given(name)) out.push_back(b[name].integer());
  return out;
}

}  // namespace kiln::golden
