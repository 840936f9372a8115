// SPDX-License-Identifier: Apache-2.0
// The plan's bytes for the cache, its readable text, and the check of its indices.
// Bytes: "KPLN", version, hash of the payload, payload of varints and counted strings. Nothing read is
// trusted: a damaged entry must be an error, never a crash or another program.
#include "ir/plan.h"

#include <algorithm>
#include <cstring>

#include "ir/base/error.h"
#include "ir/base/hash.h"
#include "ir/base/wire.h"

namespace kiln {

namespace {

constexpr std::string_view kMagic = "KPLN";
constexpr uint8_t kVersion = 7;
constexpr size_t kHeaderBytes = 4 + 1 + 16;
constexpr int kMaxDimNesting = 64;  // parse_dim recurses once per parenthesis

class Writer {
 public:
  void u(uint64_t v) {
    for (; v >= 0x80; v >>= 7) out_.push_back(static_cast<char>(v | 0x80));
    out_.push_back(static_cast<char>(v));
  }
  void i(int64_t v) { u((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63)); }
  void text(std::string_view s) {
    u(s.size());
    out_.append(s);
  }
  template <typename T>
  void ints(const std::vector<T>& values) {
    u(values.size());
    for (const T v : values) i(v);
  }
  void dim(const Dim& d) {
    u(d.is_const() ? 0 : 1);
    if (d.is_const()) i(d.value());
    else text(d.str());
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class PlanReader {
 public:
  explicit PlanReader(std::string_view bytes) : bytes_(bytes) {}

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorKind::io,
                fmt::format("plan: damaged bytes; {} at byte {} of {}", what, at_, bytes_.size()));
  }
  uint8_t byte() {
    if (at_ >= bytes_.size()) fail("end of data");
    return static_cast<uint8_t>(bytes_[at_++]);
  }
  uint64_t u() {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t b = byte();
      v |= uint64_t{b & 0x7fu} << shift;
      if (b < 0x80) return v;
    }
    fail("a number of more than 64 bits");
  }
  int64_t i() {
    const uint64_t v = u();
    return static_cast<int64_t>((v >> 1) ^ (~(v & 1) + 1));
  }
  int32_t i32() {
    const int64_t v = i();
    if (v != static_cast<int32_t>(v)) fail("a number of more than 32 bits");
    return static_cast<int32_t>(v);
  }
  bool flag() {
    const uint64_t v = u();
    if (v > 1) fail("a flag that is neither 0 nor 1");
    return v == 1;
  }
  uint8_t choice(uint64_t count) {
    const uint64_t v = u();
    if (v >= count) fail("an unknown enumerator");
    return static_cast<uint8_t>(v);
  }
  /// A count of things that take a byte or more each, so that a lie cannot ask for much memory.
  size_t count() {
    const uint64_t n = u();
    if (n > bytes_.size() - at_) fail("a count beyond the end of data");
    return static_cast<size_t>(n);
  }
  std::string text() {
    const size_t n = count();
    at_ += n;
    return std::string(bytes_.substr(at_ - n, n));
  }
  std::vector<int32_t> ints() {
    std::vector<int32_t> out(count());
    for (int32_t& v : out) v = i32();
    return out;
  }
  Dim dim() {
    if (!flag()) return Dim(i());
    const std::string t = text();
    int depth = 0, deepest = 0;
    for (const char c : t) deepest = std::max(deepest, depth += (c == '(') - (c == ')'));
    if (deepest > kMaxDimNesting) fail("a dim nested too deep");
    Dim d;
    try {
      d = parse_dim(t);
    } catch (const Error& e) {
      fail(e.what());
    }
    if (d.is_const() || d.str() != t) fail("a dim that is not in canonical form");
    return d;
  }
  void end() const {
    if (at_ != bytes_.size()) fail("bytes after the end");
  }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

void write_hash(std::string& out, const Hash128& h) {
  for (const uint64_t word : {h.hi, h.lo})
    for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(word >> shift));
}

void write_launch(Writer& w, const Launch& l) {
  w.u(static_cast<uint64_t>(l.kind));
  w.i(l.kernel);
  w.ints(l.buffers);
  w.ints(l.dims);
  w.i(l.tasks);
  w.i(l.scratch_bytes);
  w.u(l.barrier_before);
  w.i(l.profile);
  w.ints(l.writes);
  w.u(l.parts.size());
  for (const LaunchPart& p : l.parts) {
    w.i(p.tasks);
    w.i(p.elements);
  }
  w.u(l.starts.size());
  for (const int64_t s : l.starts) w.i(s);
}

Launch read_launch(PlanReader& r) {
  Launch l;
  l.kind = static_cast<LaunchKind>(r.choice(3));
  l.kernel = r.i32();
  l.buffers = r.ints();
  l.dims = r.ints();
  l.tasks = r.i32();
  l.scratch_bytes = r.i32();
  l.barrier_before = r.flag();
  l.profile = r.i32();
  l.writes = r.ints();
  l.parts.resize(r.count());
  for (LaunchPart& p : l.parts) {
    p.tasks = r.i32();
    p.elements = r.i32();
  }
  l.starts.resize(r.count());
  for (int64_t& s : l.starts) s = r.i();
  return l;
}

void write_collective(Writer& w, const PlanCollective& c) {
  w.text(c.kind);
  w.u(static_cast<uint64_t>(c.wire));
  w.i(c.group);
  w.i(c.buffer);
  w.i(c.count);
  w.ints(c.pieces);
  w.i(c.source);
}

PlanCollective read_collective(PlanReader& r) {
  PlanCollective c;
  c.kind = r.text();
  c.wire = static_cast<DType>(r.choice(kDTypeCount));
  c.group = r.i32();
  c.buffer = r.i32();
  c.count = r.i32();
  c.pieces = r.ints();
  c.source = r.i32();
  return c;
}

template <typename T, typename F>
void write_all(Writer& w, const std::vector<T>& values, F&& one) {
  w.u(values.size());
  for (const T& v : values) one(v);
}

template <typename T, typename F>
void read_all(PlanReader& r, std::vector<T>& values, F&& one) {
  const size_t n = r.count();
  for (size_t k = 0; k < n; ++k) values.push_back(one());
}

}  // namespace

std::string serialize(const Plan& plan) {
  Writer w;
  write_all(w, plan.symbols, [&](const std::string& s) { w.text(s); });
  write_all(w, plan.dims, [&](const Dim& d) { w.dim(d); });
  write_all(w, plan.buffers, [&](const PlanBuffer& b) {
    w.u(static_cast<uint64_t>(b.kind));
    w.u(static_cast<uint64_t>(b.dtype));
    w.i(b.index);
    w.i(b.bytes);
    w.i(b.offset);
    w.text(b.name);
  });
  write_all(w, plan.kernels, [&](const PlanKernel& k) {
    w.u(k.builtin);
    w.text(k.symbol);
  });
  write_all(w, plan.collectives, [&](const PlanCollective& c) { write_collective(w, c); });
  write_all(w, plan.launches, [&](const Launch& l) { write_launch(w, l); });
  write_all(w, plan.profile, [&](const ProfileRow& p) {
    w.text(p.name);
    w.text(p.ops);
    w.i(p.bytes);
    w.i(p.flops);
    w.ints(p.sources);
  });
  w.text(plan.constants);
  w.ints(plan.guards);
  for (const int32_t v :
       {plan.arena_bytes, plan.guarded_from, plan.external_count, plan.scalar_count, plan.output_count})
    w.i(v);

  const std::string payload = w.take();
  std::string out(kMagic);
  out.push_back(static_cast<char>(kVersion));
  write_hash(out, hash128(payload));
  return out + payload;
}

Plan deserialize_plan(std::string_view bytes) {
  KILN_CHECK(bytes.size() >= kHeaderBytes && bytes.starts_with(kMagic), io,
             "plan: not a plan; got {} bytes without its header", bytes.size());
  const auto version = static_cast<uint8_t>(bytes[kMagic.size()]);
  KILN_CHECK(version == kVersion, io, "plan: another version; got {}, expected {}", version, kVersion);
  const std::string_view payload = bytes.substr(kHeaderBytes);
  std::string expected;
  write_hash(expected, hash128(payload));
  KILN_CHECK(bytes.substr(kMagic.size() + 1, 16) == expected, io,
             "plan: damaged bytes; the checksum differs");

  PlanReader r(payload);
  Plan plan;
  read_all(r, plan.symbols, [&] { return r.text(); });
  read_all(r, plan.dims, [&] { return r.dim(); });
  read_all(r, plan.buffers, [&] {
    PlanBuffer b;
    b.kind = static_cast<BufferKind>(r.choice(5));
    b.dtype = static_cast<DType>(r.choice(kDTypeCount));
    b.index = r.i32();
    b.bytes = r.i32();
    b.offset = r.i32();
    b.name = r.text();
    return b;
  });
  read_all(r, plan.kernels, [&] {
    PlanKernel k;
    k.builtin = r.flag();
    k.symbol = r.text();
    return k;
  });
  read_all(r, plan.collectives, [&] { return read_collective(r); });
  read_all(r, plan.launches, [&] { return read_launch(r); });
  read_all(r, plan.profile, [&] {
    ProfileRow p;
    p.name = r.text();
    p.ops = r.text();
    p.bytes = r.i32();
    p.flops = r.i32();
    p.sources = r.ints();
    return p;
  });
  plan.constants = r.text();
  plan.guards = r.ints();
  for (int32_t* v :
       {&plan.arena_bytes, &plan.guarded_from, &plan.external_count, &plan.scalar_count, &plan.output_count})
    *v = r.i32();
  r.end();
  const std::string fault = plan_fault(plan);
  KILN_CHECK(fault.empty(), io, "plan: damaged bytes; {}", fault);
  return plan;
}

namespace {

/// Collects the first fault; every check after it is skipped.
struct FaultFinder {
  const Plan& plan;
  std::string fault;

  void index(int64_t i, int64_t count, bool optional, std::string_view what, size_t of) {
    if (!fault.empty() || (i >= 0 && i < count) || (optional && i == -1)) return;
    fault = fmt::format("{} {} is out of range; got {}, expected below {}", what, of, i, count);
  }
  void dim(DimIndex i, bool optional, std::string_view what, size_t of) {
    index(i, static_cast<int64_t>(plan.dims.size()), optional, what, of);
  }
  void buffer(const PlanBuffer& b, size_t at);
  void launch(const Launch& l, size_t at);
  void collective(const PlanCollective& c, size_t at);
  void symbols();
};

void FaultFinder::buffer(const PlanBuffer& b, size_t at) {
  const bool placed = b.kind == BufferKind::arena || b.kind == BufferKind::constant;
  dim(b.bytes, b.kind == BufferKind::scalar, "bytes of buffer", at);
  dim(b.offset, !placed, "offset of buffer", at);
  if (b.kind == BufferKind::external)
    index(b.index, plan.external_count, false, "slot of external buffer", at);
  if (b.kind == BufferKind::scalar) index(b.index, plan.scalar_count, false, "slot of scalar buffer", at);
  if (b.kind == BufferKind::output) index(b.index, plan.output_count, false, "slot of output buffer", at);
}

void FaultFinder::launch(const Launch& l, size_t at) {
  const bool kernel = l.kind == LaunchKind::kernel;
  index(l.kernel, static_cast<int64_t>(kernel ? plan.kernels.size() : plan.collectives.size()), false,
        kernel ? "kernel of launch" : "collective of launch", at);
  for (const int32_t b : l.buffers)
    index(b, static_cast<int64_t>(plan.buffers.size()), false, "a buffer of launch", at);
  for (const int32_t w : l.writes)
    index(w, static_cast<int64_t>(l.buffers.size()), false, "a written buffer of launch", at);
  for (const DimIndex d : l.dims) dim(d, false, "a dim of launch", at);
  dim(l.tasks, true, "tasks of launch", at);
  dim(l.scratch_bytes, true, "scratch of launch", at);
  for (const LaunchPart& p : l.parts) {
    dim(p.tasks, false, "tasks of a part of launch", at);
    dim(p.elements, false, "elements of a part of launch", at);
  }
  if (!l.starts.empty() && l.starts.size() != l.buffers.size() && fault.empty())
    fault = fmt::format("launch {} has {} starts for {} buffers", at, l.starts.size(), l.buffers.size());
  for (const int64_t s : l.starts)
    if (s < 0 && fault.empty()) fault = fmt::format("a start of launch {} is negative; got {}", at, s);
  const size_t parts = std::max<size_t>(l.parts.size(), 1);
  if ((l.buffers.size() % parts != 0 || l.dims.size() % parts != 0) && fault.empty())
    fault = fmt::format("launch {} has {} buffers and {} dims for {} parts", at, l.buffers.size(),
                        l.dims.size(), parts);
  index(l.profile, static_cast<int64_t>(plan.profile.size()), true, "profile row of launch", at);
}

void FaultFinder::collective(const PlanCollective& c, size_t at) {
  index(c.buffer, static_cast<int64_t>(plan.buffers.size()), false, "buffer of collective", at);
  dim(c.count, false, "count of collective", at);
  for (const DimIndex d : c.pieces) dim(d, false, "a piece of collective", at);
  if (c.group < 0 && fault.empty()) fault = fmt::format("collective {} has no group; got {}", at, c.group);
  if (c.kind != "all_reduce" && fault.empty())
    fault = fmt::format("collective {} is of no kind that is known; got {}", at, c.kind);
  if (!fault.empty()) return;
  const DType own = plan.buffers[static_cast<size_t>(c.buffer)].dtype;
  if (c.wire != own && !is_wire(c.wire))
    fault = fmt::format("collective {} of {} cannot be sent as {}", at, dtype_name(own), dtype_name(c.wire));
}

void FaultFinder::symbols() {
  std::vector<std::string> used;
  for (const Dim& d : plan.dims) d.collect_symbols(used);
  for (const std::string& s : used) {
    const bool known = std::find(plan.symbols.begin(), plan.symbols.end(), s) != plan.symbols.end();
    if (!known && fault.empty())
      fault = fmt::format("a dim uses the symbol {}, which the plan does not list", s);
  }
}

}  // namespace

std::string plan_fault(const Plan& plan) {
  FaultFinder f{plan, {}};
  for (const int32_t n : {plan.external_count, plan.scalar_count, plan.output_count})
    if (n < 0 && f.fault.empty()) f.fault = fmt::format("a slot count is negative; got {}", n);
  f.symbols();
  f.dim(plan.arena_bytes, true, "arena bytes of plan", 0);
  for (size_t i = 0; i < plan.guards.size(); ++i)
    f.index(plan.guards[i], static_cast<int64_t>(plan.buffers.size()), false, "buffer of guard", i);
  f.index(plan.guarded_from, static_cast<int64_t>(plan.launches.size()), true, "first guarded launch of plan",
          0);
  for (size_t i = 0; i < plan.buffers.size(); ++i) f.buffer(plan.buffers[i], i);
  for (size_t i = 0; i < plan.launches.size(); ++i) f.launch(plan.launches[i], i);
  for (size_t i = 0; i < plan.collectives.size(); ++i) f.collective(plan.collectives[i], i);
  for (size_t i = 0; i < plan.profile.size(); ++i) {
    f.dim(plan.profile[i].bytes, true, "bytes of profile row", i);
    f.dim(plan.profile[i].flops, true, "flops of profile row", i);
  }
  return f.fault;
}

namespace {

std::string dim_text(const Plan& plan, DimIndex i) {
  if (i < 0 || static_cast<size_t>(i) >= plan.dims.size()) return i == -1 ? "-" : fmt::format("?{}", i);
  return plan.dims[static_cast<size_t>(i)].str();
}

std::string buffer_text(const Plan& plan, const PlanBuffer& b) {
  constexpr std::string_view kKinds[] = {"external", "scalar", "arena", "output", "constant"};
  const bool placed = b.kind == BufferKind::arena || b.kind == BufferKind::constant;
  std::string out =
      fmt::format("{} {} {}", kKinds[static_cast<int>(b.kind)],
                  placed ? "@" + dim_text(plan, b.offset) : fmt::format("#{}", b.index), dtype_name(b.dtype));
  if (b.bytes >= 0) out += fmt::format(" bytes={}", dim_text(plan, b.bytes));
  if (!b.name.empty()) out += fmt::format(" \"{}\"", b.name);
  return out;
}

/// "launch start all_reduce#0(b4) group=0 wire=f32 count=128 pieces=[0, 64]".
std::string collective_text(const Plan& plan, const Launch& l) {
  std::string out = l.barrier_before ? "launch " : "       ";
  out += l.kind == LaunchKind::start ? "start " : "wait ";
  if (l.kernel < 0 || static_cast<size_t>(l.kernel) >= plan.collectives.size())
    return out + fmt::format("?{}", l.kernel);
  const PlanCollective& c = plan.collectives[static_cast<size_t>(l.kernel)];
  out += fmt::format("{}#{}(b{})", c.kind, l.kernel, c.buffer);
  if (l.kind == LaunchKind::wait) return out;
  out += fmt::format(" group={} wire={} count={} pieces=[", c.group, dtype_name(c.wire),
                     dim_text(plan, c.count));
  for (size_t i = 0; i < c.pieces.size(); ++i) out += (i ? ", " : "") + dim_text(plan, c.pieces[i]);
  return out + "]";
}

std::string launch_text(const Plan& plan, const Launch& l) {
  if (l.kind != LaunchKind::kernel) return collective_text(plan, l);
  const PlanKernel* k = l.kernel >= 0 && static_cast<size_t>(l.kernel) < plan.kernels.size()
                            ? &plan.kernels[l.kernel]
                            : nullptr;
  std::string out = l.barrier_before ? "launch " : "       ";
  out += k ? (k->builtin ? "builtin:" : "") + k->symbol : fmt::format("?{}", l.kernel);
  out += "(";
  for (size_t i = 0; i < l.buffers.size(); ++i) {
    out += fmt::format("{}b{}", i ? ", " : "", l.buffers[i]);
    if (i < l.starts.size() && l.starts[i] != 0) out += fmt::format("+{}", l.starts[i]);
  }
  out += ") dims=[";
  for (size_t i = 0; i < l.dims.size(); ++i) out += (i ? ", " : "") + dim_text(plan, l.dims[i]);
  out += fmt::format("] tasks={}", dim_text(plan, l.tasks));
  if (l.scratch_bytes >= 0) out += fmt::format(" scratch={}", dim_text(plan, l.scratch_bytes));
  for (size_t i = 0; i < l.parts.size(); ++i)
    out += fmt::format("{}{}", i ? ", " : " parts=[", dim_text(plan, l.parts[i].tasks));
  if (!l.parts.empty()) out += "]";
  if (l.profile < 0 || static_cast<size_t>(l.profile) >= plan.profile.size()) return out;
  const ProfileRow& p = plan.profile[l.profile];
  out += fmt::format("  // {}", p.name);
  if (!p.ops.empty()) out += fmt::format(" [{}]", p.ops);
  if (p.bytes >= 0) out += fmt::format(" bytes={}", dim_text(plan, p.bytes));
  if (p.flops >= 0) out += fmt::format(" flops={}", dim_text(plan, p.flops));
  return out;
}

}  // namespace

std::string print(const Plan& plan) {
  std::string out = "plan(";
  for (size_t i = 0; i < plan.symbols.size(); ++i) out += (i ? ", " : "") + plan.symbols[i];
  out += fmt::format(") externals={} scalars={} outputs={} arena={} constants={} {{\n", plan.external_count,
                     plan.scalar_count, plan.output_count, dim_text(plan, plan.arena_bytes),
                     plan.constants.size());
  for (size_t i = 0; i < plan.buffers.size(); ++i)
    out += fmt::format("  b{}: {}\n", i, buffer_text(plan, plan.buffers[i]));
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    if (static_cast<int64_t>(i) == plan.guarded_from)
      out += fmt::format("  guard b{}\n", fmt::join(plan.guards, " b"));
    out += "  " + launch_text(plan, plan.launches[i]) + "\n";
  }
  return out + "}\n";
}

}  // namespace kiln
