// SPDX-License-Identifier: Apache-2.0
// Updates of the rows that were looked up. The gradient of a table is zero but in those rows; where a plain
// SGD step subtracts a multiple of it, the rows are added to the parameter itself, in place, and the others
// are neither read nor written. A row that was looked up twice is rounded twice. (A rate of infinity or NaN,
// which would make NaN of all rows, makes it of these alone.)
#include <algorithm>

#include "ir/passes.h"
#include "ir/rewrite.h"

namespace kiln {

namespace {

class RowUpdates {
 public:
  explicit RowUpdates(const Graph& g) : g_(g), users_(static_cast<size_t>(g.value_count()), 0) {
    for (const Node& n : g.nodes)
      for (const Value v : n.in) ++users_[static_cast<size_t>(v.id)];
    for (const GraphOutput& o : g.outputs) ++users_[static_cast<size_t>(o.value.id)];
    for (const GraphOutput& o : g.outputs)
      if (o.alias_input >= 0) look_at(o.value, g.inputs[static_cast<size_t>(o.alias_input)].value);
  }
  bool any() const { return !found_.empty(); }

  Graph run() const {
    detail::Rewrite r(g_);
    for (const Node& n : g_.nodes) {
      const auto update =
          std::find_if(found_.begin(), found_.end(), [&](const Update& u) { return u.result == n.out; });
      r.set(n.out, update == found_.end() ? r.out.add_node(n.op, r.mapped(n.in), n.attrs, n.origin)
                                          : rewritten(*update, n, r));
    }
    return r.finish();
  }

 private:
  /// result = param - index_add(0, rows) * expand(rate).
  struct Update {
    Value result, param, rate;
    const Node* rows = nullptr;
  };

  const Node* made_by(Value v, Op o) const { return detail::made_by(g_, v, o); }
  bool used_once(Value v) const { return users_[static_cast<size_t>(v.id)] == 1; }
  bool is_zero(Value v) const {
    const Node* n = made_by(v, op("constant"));
    return n && std::get<double>(n->attrs[0]) == 0;
  }

  void look_at(Value result, Value param) {
    const Node* difference = made_by(result, op("sub"));
    if (!difference || difference->in[0] != param || !used_once(result)) return;
    const Node* product = made_by(difference->in[1], op("mul"));
    if (!product || !used_once(product->out)) return;
    for (size_t i = 0; i < 2; ++i) {
      const Node* rows = made_by(product->in[i], op("index_add"));
      const Node* rate = made_by(product->in[1 - i], op("expand"));
      if (!rows || !used_once(rows->out) || !is_zero(rows->in[0])) continue;
      if (rate && numel(g_.type(rate->in[0]).shape).is(1))
        found_.push_back({result, param, rate->in[0], rows});
      return;
    }
  }

  static Value rewritten(const Update& u, const Node& n, detail::Rewrite& r) {
    const auto emit = [&](Op o, const std::vector<Value>& in, Attrs attrs) {
      return r.out.add_node(o, in, std::move(attrs), n.origin);
    };
    const std::vector<Value> rows = r.mapped(u.rows->in), own = r.mapped({u.param, u.rate});
    const Shape shape = r.out.type(rows[2]).shape;
    const Value rate = emit(op("reshape"), {own[1]}, {Shape{}});
    const Value step = emit(op("mul"), {rows[2], emit(op("expand"), {rate}, {shape})}, {});
    return emit(op("index_add"), {own[0], rows[1], emit(op("neg"), {step}, {})}, u.rows->attrs);
  }

  const Graph& g_;
  std::vector<int> users_;
  std::vector<Update> found_;
};

}  // namespace

std::optional<Graph> update_rows(const Graph& g) {
  const RowUpdates updates(g);
  return updates.any() ? std::optional(updates.run()) : std::nullopt;
}

}  // namespace kiln
