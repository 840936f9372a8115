// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/launches.h"

#include <algorithm>
#include <array>

#include "ir/base/error.h"
#include "runtime/cuda/builtins.h"
#include "runtime/cuda/collectives.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/guards.h"
#include "runtime/profiler.h"

namespace kiln {

using cuda::Address;
using cuda::DeclaredAccess;
using cuda::Stream;

namespace {

constexpr double kForkNs = 5'000;             // some six calls of the driver
constexpr int64_t kBytesPerBlock = 64 << 10;  // of the runtime's copies and fills

/// A kernel's parameter block, as ir/kernel_image.h says: of a launch that is one, or of several parts.
class Parameters {
 public:
  explicit Parameters(const CudaKernel& k)
      : dims_at_(static_cast<size_t>(std::max(k.buffer_count, 1))),
        dims_(static_cast<size_t>(std::max(k.dim_count, 1))),
        parts_(static_cast<size_t>(k.parts)),
        size_(static_cast<size_t>(parameter_words(k))) {
    if (size_ > few_.size()) many_.resize(size_);
  }
  void buffer(size_t i, Address a) { words()[i] = a; }
  void dim(size_t i, int64_t d) { words()[dims_at_ + i] = static_cast<uint64_t>(d); }
  void guard(Address a) { words()[size_ - 1] = a; }

  /// Part i of a launch of several, with blocks from `first` on; `buffer(j)` is where its buffer j lies.
  template <typename Buffer>
  void part(size_t i, int64_t first, size_t buffers, Buffer&& buffer, std::span<const int64_t> sizes) {
    words()[i] = static_cast<uint64_t>(first);
    uint64_t* at = words() + parts_ + i * dims_at_;
    for (size_t j = 0; j < buffers; ++j) at[j] = buffer(j);
    at = words() + parts_ * (1 + dims_at_) + i * dims_;
    for (size_t j = 0; j < sizes.size(); ++j) at[j] = static_cast<uint64_t>(sizes[j]);
  }
  void no_parts_from(size_t i) {
    for (; i < parts_; ++i) words()[i] = static_cast<uint64_t>(INT64_MAX);
  }
  uint64_t* words() { return many_.empty() ? few_.data() : many_.data(); }

 private:
  size_t dims_at_, dims_, parts_, size_;
  std::array<uint64_t, 64> few_{};
  std::vector<uint64_t> many_;
};

/// The streams of one interval between two barriers.
class Lanes {
 public:
  explicit Lanes(CudaDevice& device) : device_(device) {}
  ~Lanes() {
    try {
      join();
    } catch (const Error&) {  // on the way of another
    }
  }
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// The compute stream and the side streams in turn.
  Stream next() {
    const int lane = turn_++ % (CudaDevice::kSideStreams + 1) - 1;
    if (lane < 0) {
      if (turn_ == 1) {
        begin_ = device_.event();
        device_.record(begin_, device_.compute());
      }
      return device_.compute();
    }
    if (!used_[static_cast<size_t>(lane)]) device_.wait(device_.side(lane), begin_);
    used_[static_cast<size_t>(lane)] = true;
    return device_.side(lane);
  }
  void join() {
    for (size_t i = 0; i < used_.size(); ++i)
      if (std::exchange(used_[i], false)) device_.order(device_.side(static_cast<int>(i)), device_.compute());
  }

 private:
  CudaDevice& device_;
  CudaEvent begin_;
  int turn_ = 0;
  std::array<bool, CudaDevice::kSideStreams> used_{};
};

/// Throws: device, if there is no library, or no device that it knows.
std::unique_ptr<CudaProducts> open_products(CudaDevice& device) {
  std::string why;
  const cuda::CublasLt* library = cuda::find_cublaslt(device.simulated(), why);
  KILN_CHECK(library, device,
             "cuda:{}: KILN_CUDA_MATMUL=cublaslt: {} (or leave matrix products to Kiln's kernels: "
             "KILN_CUDA_MATMUL=kiln)",
             device.index(), why);
  return std::make_unique<CudaProducts>(*library, device);
}

bool is_guarded(const Plan& plan, size_t launch) {
  return plan.guarded_from >= 0 && launch >= static_cast<size_t>(plan.guarded_from);
}

}  // namespace

CudaLaunches::CudaLaunches(const Plan& plan, const KernelImage& image, CudaDevice& device,
                           const CudaOptions& options)
    : plan_(plan), device_(device), options_(options) {
  find_kernels(image);
  bool own = plan_.guards.size() > (options_.word ? 0 : 1);
  for (size_t i = 0; i < plan_.launches.size(); ++i) {
    const Launch& l = plan_.launches[i];
    const auto kernel = static_cast<size_t>(l.kernel);
    host_guards_ = host_guards_ || (l.kind != LaunchKind::kernel && is_guarded(plan_, i));
    if (l.kind != LaunchKind::kernel) {
      names_.push_back(plan_.collectives[kernel].kind);
      continue;
    }
    names_.push_back(l.profile >= 0 ? plan_.profile[static_cast<size_t>(l.profile)].name : "");
    if (names_.back().empty()) names_.back() = plan_.kernels[kernel].symbol;
    if (!functions_[kernel]) {
      own = own || options_.word || is_guarded(plan_, i);
      continue;
    }
    const CudaKernel& k = functions_[kernel]->kernel();
    const size_t parts = std::max<size_t>(l.parts.size(), 1);
    KILN_ASSERT(l.buffers.size() == parts * static_cast<size_t>(k.buffer_count) &&
                    l.dims.size() == parts * static_cast<size_t>(k.dim_count) &&
                    l.parts.empty() == (k.parts == 0),
                "launch {} of {} with {} buffers and {} dims; the kernel takes {} and {}", i, k.symbol,
                l.buffers.size(), l.dims.size(), k.buffer_count, k.dim_count);
  }
  if (own) own_ = std::make_unique<CudaModules>(device_, std::vector{cuda_builtins()}, "any device");
}

CudaLaunches::~CudaLaunches() = default;

void CudaLaunches::find_kernels(const KernelImage& image) {
  modules_ = std::make_unique<CudaModules>(device_, image.modules, image.target);
  for (const PlanKernel& k : plan_.kernels) {
    CudaFunction* f = k.builtin ? nullptr : modules_->find(k.symbol);
    const bool product = k.builtin && names_product(k.symbol);
    if (product && !products_) products_ = open_products(device_);
    const bool known = product || k.symbol == "copy" || k.symbol == "fill_zero";
    KILN_ASSERT(k.builtin ? known : f != nullptr, "CUDA executor: no {} named {}",
                k.builtin ? "builtin" : "kernel", k.symbol);
    functions_.push_back(f);
  }
}

bool CudaLaunches::only_streams(std::span<ProcessGroup* const> groups) const {
  return !host_guards_ && std::all_of(plan_.collectives.begin(), plan_.collectives.end(), [&](const auto& c) {
    return works_on_device(*groups[static_cast<size_t>(c.group)]);
  });
}

const char* CudaLaunches::place(const Launch& l) const {
  const auto row = static_cast<size_t>(l.profile);
  return l.profile >= 0 && row < options_.places.size() ? options_.places[row].c_str() : "";
}

void CudaLaunches::run(const Call& call) {
  CudaCollectives works(plan_, device_, call);
  const size_t count = plan_.launches.size();
  Address guard = first_guard();
  for (size_t from = 0, to = 0; from < count; from = to) {
    for (to = from + 1; to < count && !plan_.launches[to].barrier_before && to != call.bound.guarded_from;)
      ++to;
    if (from == call.bound.guarded_from) {
      if (host_guards_ && !guards_hold(call)) return;
      guard = combined_guard(call, guard);
    }
    if (from == call.bound.announced_from) works.announce();
    run_interval(call, from, to, guard, works);
  }
  if (options_.word && call.bound.guarded_from >= count) combined_guard(call, guard);  // for calls to come
}

/// Whether launches of an interval gain by going side by side: one leaves processors idle, and two last
/// longer than it takes to fork and join; a graph does that for next to nothing.
bool CudaLaunches::worth_forking(const Call& call, size_t from, size_t to) const {
  int longer = 0;
  bool room = false;
  for (size_t i = from; i < to; ++i) {
    const BoundLaunch& l = call.bound.launches[i];
    if (l.kind != LaunchKind::kernel || l.tasks == 0) continue;
    // The estimate is of a thread of a CPU, which a block outdoes about twice.
    longer += device_.recording() || l.ns / (2 * static_cast<double>(l.tasks)) > kForkNs;
    room = room || l.tasks < device_.limits().multiprocessors;
  }
  return room && longer > 1;
}

void CudaLaunches::run_interval(const Call& call, size_t from, size_t to, Address guard,
                                CudaCollectives& works) {
  const bool fork = worth_forking(call, from, to);
  Lanes lanes(device_);
  for (size_t i = from; i < to; ++i) {
    const bool apart = fork && plan_.launches[i].kind == LaunchKind::kernel;
    launch(call, i, apart ? lanes.next() : device_.compute(), guard, works);
  }
  lanes.join();
}

void CudaLaunches::launch(const Call& call, size_t at, Stream stream, Address guard, CudaCollectives& works) {
  const Launch& l = plan_.launches[at];
  if (l.kind == LaunchKind::start) return works.start(l.kernel);
  if (l.kind == LaunchKind::wait) return works.wait(l.kernel);
  if (functions_[static_cast<size_t>(l.kernel)]) launch_kernel(call, at, stream, guard);
  else launch_builtin(call, at, stream, guard);
}

Address CudaLaunches::address_of(const Call& call, const Launch& l, size_t i) {
  return call.buffers[static_cast<size_t>(l.buffers[i])] + static_cast<Address>(l.start(i));
}

void CudaLaunches::launch_kernel(const Call& call, size_t at, Stream stream, Address guard) {
  const Launch& l = plan_.launches[at];
  const BoundLaunch& b = call.bound.launches[at];
  CudaFunction& f = *functions_[static_cast<size_t>(l.kernel)];
  if (!l.parts.empty()) return launch_parts(call, at, stream, guard);
  const int64_t shared = l.scratch_bytes >= 0 ? call.bound.dims[static_cast<size_t>(l.scratch_bytes)] : 0;
  f.allow_shared(static_cast<size_t>(shared));
  Parameters block(f.kernel());
  for (size_t i = 0; i < l.buffers.size(); ++i) block.buffer(i, address_of(call, l, i));
  for (size_t i = 0; i < l.dims.size(); ++i)
    block.dim(i, call.bound.launch_dims[static_cast<size_t>(b.first_dim) + i]);
  block.guard(guard);
  const std::vector<DeclaredAccess> accesses = accesses_of(call, l, 0, l.buffers.size(), guard);
  device_.launch({.function = f.get(),
                  .blocks = b.tasks,
                  .threads = f.kernel().threads,
                  .shared_bytes = static_cast<size_t>(shared),
                  .parameters = block.words(),
                  .name = names_[at].c_str(),
                  .place = place(l),
                  .accesses = accesses},
                 stream);
}

/// Of places [from, to) in the launch's buffers; a real device needs none.
std::vector<DeclaredAccess> CudaLaunches::accesses_of(const Call& call, const Launch& l, size_t from,
                                                      size_t to, Address guard) const {
  std::vector<DeclaredAccess> out;
  if (!device_.simulated()) return out;
  for (size_t i = from; i < to; ++i) {
    const auto buffer = static_cast<size_t>(l.buffers[i]);
    const bool written = std::binary_search(l.writes.begin(), l.writes.end(), static_cast<int32_t>(i));
    out.push_back({call.buffers[buffer], static_cast<uint64_t>(call.bound.sizes[buffer]), true, written,
                   plan_.buffers[buffer].name.c_str()});
  }
  if (guard) out.push_back({guard, sizeof(int64_t), true, false, "guard"});
  return out;
}

/// As many launches as there must be for their parameters to have room; parts without work are in none.
void CudaLaunches::launch_parts(const Call& call, size_t at, Stream stream, Address guard) {
  const Launch& l = plan_.launches[at];
  const BoundLaunch& b = call.bound.launches[at];
  CudaFunction& f = *functions_[static_cast<size_t>(l.kernel)];
  const auto most = static_cast<size_t>(f.kernel().parts), args = static_cast<size_t>(b.part_args),
             dims = static_cast<size_t>(b.part_dims), count = static_cast<size_t>(b.parts);
  for (size_t next = 0; next < count;) {
    Parameters block(f.kernel());
    std::vector<DeclaredAccess> accesses;
    int64_t blocks = 0;
    size_t used = 0;
    for (; next < count && used < most; ++next) {
      const int64_t tasks = call.bound.parts[static_cast<size_t>(b.first_part) + next].tasks;
      if (tasks == 0) continue;
      const auto buffer = [&](size_t i) { return address_of(call, l, next * args + i); };
      const int64_t* sizes = call.bound.launch_dims.data() + b.first_dim + next * dims;
      block.part(used++, blocks, args, buffer, std::span(sizes, dims));
      blocks += tasks;
      for (const DeclaredAccess& a : accesses_of(call, l, next * args, (next + 1) * args, 0))
        accesses.push_back(a);
    }
    if (used == 0) continue;
    block.no_parts_from(used);
    block.guard(guard);
    if (guard && device_.simulated()) accesses.push_back({guard, sizeof(int64_t), true, false, "guard"});
    device_.launch({.function = f.get(),
                    .blocks = blocks,
                    .threads = f.kernel().threads,
                    .parameters = block.words(),
                    .name = names_[at].c_str(),
                    .place = place(l),
                    .accesses = accesses},
                   stream);
  }
}

namespace {
std::string in_brackets(std::string_view place) { return place.empty() ? "" : fmt::format(" ({})", place); }
}  // namespace

/// Writes what was not there before the call, so it may run where a guard does not hold. All products of a
/// device share a workspace, and so the compute stream.
void CudaLaunches::launch_product(const Call& call, size_t at) {
  const Launch& l = plan_.launches[at];
  const auto first = static_cast<size_t>(call.bound.launches[at].first_dim);
  const CudaProductCall p = product_call(plan_.kernels[static_cast<size_t>(l.kernel)].symbol,
                                         std::span(call.bound.launch_dims).subspan(first, l.dims.size()));
  std::array<void*, 3> data{};
  for (size_t i = 0; i < data.size(); ++i)
    data[i] = reinterpret_cast<void*>(address_of(call, l, i) +
                                      static_cast<Address>(p.offsets[i]) * dtype_size(p.product.dtype));
  try {
    products_->run(p.product, data[0], data[1], data[2]);
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("{}{}", e.what(), in_brackets(place(l))), e.where());
  }
}

void CudaLaunches::launch_builtin(const Call& call, size_t at, Stream stream, Address guard) {
  const Launch& l = plan_.launches[at];
  device_.note(names_[at].c_str(), place(l));
  if (names_product(plan_.kernels[static_cast<size_t>(l.kernel)].symbol)) return launch_product(call, at);
  const int64_t bytes = call.bound.launch_dims[static_cast<size_t>(call.bound.launches[at].first_dim)];
  std::array<uint64_t, 2> buffers{};
  for (size_t i = 0; i < l.buffers.size(); ++i) buffers[i] = address_of(call, l, i);
  const bool copy = plan_.kernels[static_cast<size_t>(l.kernel)].symbol == "copy";
  if (guard == 0) {
    if (copy) device_.copy_on_device(buffers[1], buffers[0], static_cast<size_t>(bytes), stream);
    else device_.fill(buffers[0], 0, static_cast<size_t>(bytes), stream);
    return;
  }
  const std::array<uint64_t, 2> sizes{static_cast<uint64_t>(bytes), static_cast<uint64_t>(bytes)};
  const int64_t blocks = (bytes + kBytesPerBlock - 1) / kBytesPerBlock;
  const size_t used = copy ? 2 : 1;
  launch_own(copy ? "kiln_copy" : "kiln_fill_zero", l, std::span(buffers).first(used),
             std::span(sizes).first(used), bytes, blocks, guard, stream);
}

/// A kernel of the runtime's own, which writes its last buffer: "kiln_all_hold" its first.
void CudaLaunches::launch_own(const char* name, const Launch& like, std::span<const uint64_t> buffers,
                              std::span<const uint64_t> sizes, int64_t number, int64_t blocks, Address guard,
                              Stream stream) {
  CudaFunction& f = *own_->find(name);
  const auto room = static_cast<size_t>(f.kernel().buffer_count);
  const size_t written = room > 2 ? 0 : buffers.size() - 1;
  Parameters block(f.kernel());
  std::vector<DeclaredAccess> accesses;
  for (size_t i = 0; i < buffers.size(); ++i) {
    block.buffer(i, buffers[i]);
    if (device_.simulated()) accesses.push_back({buffers[i], sizes[i], true, i == written, name});
  }
  if (device_.simulated() && guard && guard != buffers[written])
    accesses.push_back({guard, sizeof(int64_t), true, false, "guard"});
  block.dim(0, number);
  block.guard(guard);
  device_.launch({.function = f.get(),
                  .blocks = blocks,
                  .threads = f.kernel().threads,
                  .parameters = block.words(),
                  .name = name,
                  .place = place(like),
                  .accesses = accesses},
                 stream);
}

bool CudaLaunches::guards_hold(const Call& call) const {
  for (const int32_t g : plan_.guards) {
    int64_t held = 0;
    device_.copy_to_host(&held, call.buffers[static_cast<size_t>(g)], sizeof held);
    if (held != kNothingWrong) return false;
  }
  return true;
}

/// Where launches look before the plan's own guards are known: nowhere, as long as the word cannot say
/// anything. A graph is replayed whenever.
Address CudaLaunches::first_guard() const {
  return options_.word && (device_.recording() || device_.guards().pending()) ? options_.word : 0;
}

/// Where the guarded launches look: `first` where the plan has no guard or the host has looked.
Address CudaLaunches::combined_guard(const Call& call, Address first) {
  if (plan_.guards.empty() || plan_.launches.empty() || host_guards_) return first;
  const auto address = [&](size_t i) { return call.buffers[static_cast<size_t>(plan_.guards[i])]; };
  if (plan_.guards.size() == 1 && !options_.word) return address(0);
  const Address result = options_.word ? options_.word : call.guard;
  const Launch& near = plan_.launches[std::min(call.bound.guarded_from, plan_.launches.size() - 1)];
  for (size_t done = 0; done < plan_.guards.size();) {
    std::vector<uint64_t> buffers{result};
    if (done > 0) buffers.push_back(result);  // what the first ones have given
    while (done < plan_.guards.size() && buffers.size() <= kMostGuards) buffers.push_back(address(done++));
    const std::vector<uint64_t> sizes(buffers.size(), sizeof(int64_t));
    launch_own("kiln_all_hold", near, buffers, sizes, static_cast<int64_t>(buffers.size()) - 1, 1, first,
               device_.compute());
  }
  return result;
}

void CudaLaunches::run_timed(const Call& call) {
  CudaCollectives works(plan_, device_, call);
  const size_t count = plan_.launches.size();
  std::vector<CudaEvent> ends;
  device_.synchronize(device_.compute());
  const int64_t start = timeline_now();
  const auto mark = [&] {
    ends.push_back(device_.event(true));
    device_.record(ends.back(), device_.compute());
  };
  mark();
  Address guard = first_guard();
  for (size_t i = 0; i < count; ++i) {
    if (i == call.bound.guarded_from) {
      if (host_guards_ && !guards_hold(call)) break;
      guard = combined_guard(call, guard);
    }
    if (i == call.bound.announced_from) works.announce();
    launch(call, i, device_.compute(), guard, works);
    mark();
  }
  if (options_.word && call.bound.guarded_from >= count) combined_guard(call, guard);
  device_.synchronize(ends.back());
  std::vector<int64_t> ns(count);
  int64_t total = 0;
  for (size_t i = 0; i + 1 < ends.size(); ++i)
    total += ns[i] = static_cast<int64_t>(device_.milliseconds(ends[i], ends[i + 1]) * 1e6);
  const Invocation& in = call.invocation;
  if (in.profiler) in.profiler->record(plan_, call.bound.dims, ns, total, Device::cuda(device_.index()));
  if (in.timeline) in.timeline->add(call_spans(plan_, call.bound, in, ns, start, works.times()));
}

}  // namespace kiln
