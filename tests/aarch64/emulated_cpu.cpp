// SPDX-License-Identifier: Apache-2.0
#include "tests/aarch64/emulated_cpu.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>

#include "codegen/program.h"
#include "frontend/context.h"
#include "frontend/program_parts.h"
#include "ir/base/error.h"
#include "runtime/bound_plan.h"
#include "tests/aarch64/protocol.h"

extern char** environ;

namespace kiln::emulated {

static_assert(kGuardHolds == kNothingWrong);

namespace {

/// A request in the making.
class Request {
 public:
  explicit Request(int64_t kind) { number(kind); }
  void number(int64_t n) { text_.append(reinterpret_cast<const char*>(&n), sizeof n); }
  void blob(std::string_view bytes) {
    number(static_cast<int64_t>(bytes.size()));
    text_ += bytes;
  }
  template <typename Numbers>
  void numbers(const Numbers& all) {
    number(static_cast<int64_t>(all.size()));
    for (const int64_t n : all) number(n);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Memory here that is given to the runner: what overlaps is one.
struct Memory {
  std::byte *begin = nullptr, *end = nullptr;
  bool filled = false;  ///< has contents that kernels may read
};

void merge(std::vector<Memory>& all) {
  std::sort(all.begin(), all.end(), [](const Memory& a, const Memory& b) { return a.begin < b.begin; });
  std::vector<Memory> out;
  for (const Memory& m : all) {
    if (out.empty() || m.begin >= out.back().end) {
      out.push_back(m);
      continue;
    }
    out.back().end = std::max(out.back().end, m.end);
    out.back().filled |= m.filled;
  }
  all = std::move(out);
}

/// A plan whose kernels are the emulated CPU's.
class EmulatedProgram : public detail::Program {
 public:
  EmulatedProgram(Cpu& cpu, const Graph& g, CompiledProgram compiled, const detail::StageOptions& options)
      : cpu_(cpu),
        plan_(std::move(compiled.plan)),
        kernels_(std::move(compiled.image)),
        bound_(bind_plan(plan_, {})),
        calls_(g, options) {
    KILN_CHECK(plan_.collectives.empty(), unsupported, "emulated cpu: a plan with collectives");
    for (size_t i = 0; i < kernels_.symbols.size(); ++i)
      symbols_[kernels_.symbols[i]] = static_cast<int64_t>(i);
    ++cpu_.counts.programs;
    cpu_.counts.kernels += static_cast<int64_t>(kernels_.symbols.size());
  }

  void run(std::span<const detail::DeviceTensor> inputs,
           std::span<const detail::DeviceTensor> outputs) override {
    const detail::PlanArguments args = calls_.arguments(inputs, outputs);
    std::vector<Memory> memory = memory_of(args);
    merge(memory);
    const int64_t image = image_number();
    cpu_.ask(request(image, args, memory));
    for (const Memory& m : memory) cpu_.read(m.begin, static_cast<size_t>(m.end - m.begin));
    ++cpu_.counts.runs;
    cpu_.counts.launches += static_cast<int64_t>(plan_.launches.size());
  }

 private:
  int64_t image_number() {
    if (kernels_.bytes.empty()) return -1;
    if (image_ < 0 || process_ != cpu_.process()) {
      image_ = cpu_.load(kernels_);
      process_ = cpu_.process();
    }
    return image_;
  }

  /// Where a buffer's memory comes from here; null for those of the plan itself.
  std::byte* address(const PlanBuffer& b, const detail::PlanArguments& args) const {
    const auto i = static_cast<size_t>(b.index);
    if (b.kind == BufferKind::external) return static_cast<std::byte*>(args.externals[i]);
    if (b.kind == BufferKind::output) return static_cast<std::byte*>(args.outputs[i]);
    return nullptr;
  }

  std::vector<Memory> memory_of(const detail::PlanArguments& args) const {
    std::vector<Memory> out;
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      std::byte* const p = address(plan_.buffers[i], args);
      if (p && bound_->sizes[i] > 0)
        out.push_back({p, p + bound_->sizes[i], plan_.buffers[i].kind == BufferKind::external});
    }
    return out;
  }

  // The segments of a run: `memory`, then the arena, the constants and the scalars.
  void put_buffers(Request& r, const detail::PlanArguments& args, const std::vector<Memory>& memory) const {
    const auto own = static_cast<int64_t>(memory.size());
    r.number(static_cast<int64_t>(plan_.buffers.size()));
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const PlanBuffer& b = plan_.buffers[i];
      std::pair<int64_t, int64_t> place{-1, 0};
      if (bound_->sizes[i] == 0) place = {-1, 0};
      else if (b.kind == BufferKind::arena) place = {own, bound_->offsets[i]};
      else if (b.kind == BufferKind::constant) place = {own + 1, bound_->offsets[i]};
      else if (b.kind == BufferKind::scalar) place = {own + 2, 8 * b.index};
      else
        for (size_t m = 0; m < memory.size(); ++m)
          if (std::byte* const p = address(b, args); p >= memory[m].begin && p < memory[m].end)
            place = {static_cast<int64_t>(m), p - memory[m].begin};
      r.number(place.first);
      r.number(place.second);
    }
  }

  int64_t symbol_of(const PlanKernel& k) const {
    if (!k.builtin) return symbols_.at(k.symbol);
    if (k.symbol == "copy") return kCopy;
    KILN_CHECK(k.symbol == "fill_zero", unsupported, "emulated cpu: a plan that runs the builtin {}",
               k.symbol);
    return kFillZero;
  }
  void put_launches(Request& r) const {
    r.number(launches_before(plan_.launches.size()));
    for (size_t i = 0; i < plan_.launches.size(); ++i) {
      const Launch& l = plan_.launches[i];
      const PlanKernel& k = plan_.kernels[static_cast<size_t>(l.kernel)];
      const size_t parts = std::max<size_t>(l.parts.size(), 1);
      const size_t args = l.buffers.size() / parts, sizes = l.dims.size() / parts;
      for (size_t p = 0; p < parts; ++p) {
        r.number(symbol_of(k));
        r.number(l.parts.empty() ? bound_->launches[i].tasks
                                 : bound_->dims[static_cast<size_t>(l.parts[p].tasks)]);
        const auto args_at = l.buffers.begin() + static_cast<ptrdiff_t>(p * args);
        r.numbers(std::vector<int32_t>(args_at, args_at + static_cast<ptrdiff_t>(args)));
        std::vector<int64_t> starts, dims;
        for (size_t a = p * args; a < (p + 1) * args; ++a) starts.push_back(l.start(a));
        r.numbers(starts);
        for (size_t d = p * sizes; d < (p + 1) * sizes; ++d)
          dims.push_back(bound_->dims[static_cast<size_t>(l.dims[d])]);
        r.numbers(dims);
      }
    }
  }
  /// Each part is a launch of its own there.
  int64_t launches_before(size_t end) const {
    int64_t n = 0;
    for (size_t i = 0; i < end; ++i) n += std::max<int64_t>(std::ssize(plan_.launches[i].parts), 1);
    return n;
  }

  std::string request(int64_t image, const detail::PlanArguments& args,
                      const std::vector<Memory>& memory) const {
    Request r(kRun);
    const auto segment = [&r](int64_t size, int64_t skew, bool wanted, std::string_view content) {
      r.number(size);
      r.number(skew);
      r.number(wanted);
      r.blob(content);
    };
    r.number(image);
    r.number(static_cast<int64_t>(memory.size()) + 3);
    for (const Memory& m : memory) {
      const auto size = static_cast<size_t>(m.end - m.begin);
      const auto skew = static_cast<int64_t>(reinterpret_cast<uintptr_t>(m.begin) % kAlignment);
      segment(m.end - m.begin, skew, true,
              {reinterpret_cast<const char*>(m.begin), m.filled ? size : size_t{0}});
    }
    segment(bound_->arena_bytes, 0, false, {});
    // Kernels load constants in whole vectors.
    segment(static_cast<int64_t>(plan_.constants.size()) + kAlignment, 0, false, plan_.constants);
    const auto scalars = static_cast<int64_t>(args.scalars.size() * sizeof(uint64_t));
    segment(scalars, 0, false,
            {reinterpret_cast<const char*>(args.scalars.data()), static_cast<size_t>(scalars)});
    put_buffers(r, args, memory);
    r.number(bound_->scratch_bytes);
    put_launches(r);
    r.numbers(plan_.guards);
    r.number(launches_before(bound_->guarded_from));
    return r.text();
  }

  Cpu& cpu_;
  const Plan plan_;
  const KernelImage kernels_;
  const std::shared_ptr<const BoundPlan> bound_;
  const detail::PlanCalls calls_;
  std::map<std::string, int64_t> symbols_;
  int64_t image_ = -1, process_ = -1;
};

}  // namespace

Cpu::Cpu(std::vector<std::string> command) : command_(std::move(command)) {
  std::signal(SIGPIPE, SIG_IGN);  // a runner that is gone is an error of the call
}

Cpu::~Cpu() {
  if (pid_ < 0) return;
  close(to_);
  close(from_);
  waitpid(pid_, nullptr, 0);
}

void Cpu::start() {
  int in[2], out[2];
  KILN_CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, device, "emulated cpu: no pipe: {}",
             std::strerror(errno));
  std::vector<char*> argv;
  for (const std::string& a : command_) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  const int rc = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (rc != 0) pid_ = -1;
  KILN_CHECK(rc == 0, device, "emulated cpu: {} cannot be started: {}", command_[0], std::strerror(rc));
  images_ = 0;
}

void Cpu::ended() {
  int status = 0;
  close(to_);
  close(from_);
  waitpid(std::exchange(pid_, -1), &status, 0);
  ++process_;
  throw Error(ErrorKind::device,
              fmt::format("emulated cpu: the runner ended {}",
                          WIFSIGNALED(status) ? fmt::format("by signal {}", WTERMSIG(status))
                                              : fmt::format("with status {}", WEXITSTATUS(status))));
}

void Cpu::ask(std::string_view request) {
  if (pid_ < 0) start();
  while (!request.empty()) {
    const ssize_t n = write(to_, request.data(), request.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ended();
    request.remove_prefix(static_cast<size_t>(n));
  }
  int64_t status = 0;
  read(&status, sizeof status);
  if (status == 0) return;
  std::string what(static_cast<size_t>(status), '\0');
  read(what.data(), what.size());
  throw Error(ErrorKind::device, fmt::format("emulated cpu: {}", what));
}

void Cpu::read(void* to, size_t size) {
  auto* at = static_cast<std::byte*>(to);
  while (size > 0) {
    const ssize_t n = ::read(from_, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ended();
    at += n;
    size -= static_cast<size_t>(n);
  }
}

int64_t Cpu::load(const KernelImage& image) {
  Request r(kLoad);
  r.blob(image.bytes);
  r.number(static_cast<int64_t>(image.symbols.size()));
  for (const std::string& s : image.symbols) r.blob(s);
  ask(r.text());
  return images_++;
}

void use(Cpu& cpu, const CpuTarget& target) {
  detail::Context& c = detail::context();
  c.target = target;
  c.foreign = [&cpu](const Graph& g, CompiledProgram&& compiled, const detail::StageOptions& options) {
    return std::make_unique<EmulatedProgram>(cpu, g, std::move(compiled), options);
  };
}

}  // namespace kiln::emulated
