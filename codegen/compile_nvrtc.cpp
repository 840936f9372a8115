// SPDX-License-Identifier: Apache-2.0
// NVRTC as a table of functions, and what is asked of it. Declares what it uses of NVRTC's binary interface
// itself. Source: NVRTC reference, CUDA 12 and 13.
#include "codegen/compile_nvrtc.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>

#include "codegen/prelude_files.h"
#include "codegen/team.h"
#include "ir/base/cuda_library.h"
#include "ir/base/error.h"
#include "ir/base/log.h"

namespace kiln {

namespace {

constexpr const char* kCubinKind = "cubin";
constexpr int kLeastArch = 80;   // bf16 arithmetic, cp.async
constexpr int kLeastMajor = 12;  // C++20

// ---- the library ----

using Program = struct ProgramObject*;  ///< nvrtcProgram

#define KILN_NVRTC_FUNCTIONS(X)                                                                    \
  X(error_string, "nvrtcGetErrorString", const char*, (int result))                                \
  X(version, "nvrtcVersion", int, (int* major, int* minor))                                        \
  X(arch_count, "nvrtcGetNumSupportedArchs", int, (int* count))                                    \
  X(archs, "nvrtcGetSupportedArchs", int, (int* archs))                                            \
  X(create, "nvrtcCreateProgram", int,                                                             \
    (Program * program, const char* source, const char* name, int count, const char* const* texts, \
     const char* const* names))                                                                    \
  X(destroy, "nvrtcDestroyProgram", int, (Program * program))                                      \
  X(compile, "nvrtcCompileProgram", int, (Program program, int count, const char* const* options)) \
  X(cubin_size, "nvrtcGetCUBINSize", int, (Program program, size_t * size))                        \
  X(cubin, "nvrtcGetCUBIN", int, (Program program, char* to))                                      \
  X(log_size, "nvrtcGetProgramLogSize", int, (Program program, size_t * size))                     \
  X(log, "nvrtcGetProgramLog", int, (Program program, char* to))

struct Nvrtc {
  DynLib library;
#define KILN_NVRTC_MEMBER(member, name, result, parameters) result(*member) parameters = nullptr;
  KILN_NVRTC_FUNCTIONS(KILN_NVRTC_MEMBER)
#undef KILN_NVRTC_MEMBER
  int major = 0, minor = 0;
  std::vector<int> known;  ///< architectures, rising

  std::string version_text() const { return fmt::format("{}.{}", major, minor); }
};

/// What keeps it from being used; "" if nothing does.
std::string fill(Nvrtc& n, const std::string& path) {
  FunctionFinder find(n.library);
#define KILN_NVRTC_FIND(member, name, result, parameters) find(n.member, name);
  KILN_NVRTC_FUNCTIONS(KILN_NVRTC_FIND)
#undef KILN_NVRTC_FIND
  if (!find.missing().empty())
    return fmt::format("{} has no function {} (CUDA 12 or later has)", path, find.missing()[0]);
  int count = 0;
  if (n.version(&n.major, &n.minor) != 0 || n.arch_count(&count) != 0)
    return fmt::format("{} does not say its version", path);
  if (n.major < kLeastMajor)
    return fmt::format("{} is version {}; Kiln needs {}.0 or later", path, n.version_text(), kLeastMajor);
  n.known.resize(static_cast<size_t>(count));
  if (n.archs(n.known.data()) != 0) return fmt::format("{} does not say what it compiles for", path);
  std::sort(n.known.begin(), n.known.end());
  return "";
}

std::unique_ptr<Nvrtc> open_nvrtc(std::string& why) {
  auto n = std::make_unique<Nvrtc>();
  std::string path, tried;
  std::optional<DynLib> library = open_cuda_library({"libnvrtc.so.13", "libnvrtc.so.12"}, path, tried);
  if (!library) {
    why = fmt::format(
        "cuda compiler: no NVRTC: {} (install a CUDA toolkit or the Python package nvidia-cuda-nvrtc, or set "
        "KILN_CUDA_PATH to the folder of one)",
        tried);
    return nullptr;
  }
  n->library = std::move(*library);
  why = fill(*n, path);
  if (!why.empty()) {
    why = "cuda compiler: " + why;
    return nullptr;
  }
  log(LogLevel::debug, "opened {} (NVRTC {})", path, n->version_text());
  return n;
}

const Nvrtc& nvrtc() {
  // A failed attempt is not remembered: the switch may be set right and the call made again.
  // Never closed: compiles may run until the process ends.
  static const Nvrtc& opened = *[] {
    std::string why;
    std::unique_ptr<Nvrtc> n = open_nvrtc(why);
    if (!n) throw Error(ErrorKind::unsupported, why);
    return n.release();
  }();
  return opened;
}

// ---- compile ----

/// 90 for "sm_90a"; 0 for what is none.
int arch_number(std::string_view arch) {
  if (!arch.starts_with("sm_")) return 0;
  arch.remove_prefix(3);
  if (!arch.empty() && (arch.back() == 'a' || arch.back() == 'f')) arch.remove_suffix(1);
  int number = 0;
  const auto [end, error] = std::from_chars(arch.data(), arch.data() + arch.size(), number);
  return error == std::errc() && end == arch.data() + arch.size() ? number : 0;
}

std::vector<std::string> flags(const std::string& arch) {
  return {"--gpu-architecture=" + arch, "--std=c++20", "--no-source-include", "--disable-warnings",
          // Sums and products may be contracted, as PyTorch's kernels are; NaN and Inf behave as IEEE says.
          "--fmad=true", "--ptxas-options=-v"};
}

class OneCompile {
 public:
  OneCompile(const Nvrtc& n, const CudaModule& module) : n_(n) {
    std::vector<std::string> texts, names;
    for (const PreludeFile& f : prelude_files(Prelude::cuda))
      texts.emplace_back(f.text), names.emplace_back(f.name);
    std::vector<const char*> text, name;
    for (size_t i = 0; i < texts.size(); ++i)
      text.push_back(texts[i].c_str()), name.push_back(names[i].c_str());
    check(n_.create(&program_, module.source.c_str(), module.name.c_str(), static_cast<int>(text.size()),
                    text.data(), name.data()),
          module.name);
  }
  OneCompile(const OneCompile&) = delete;
  OneCompile& operator=(const OneCompile&) = delete;
  ~OneCompile() { n_.destroy(&program_); }

  int run(const std::vector<std::string>& options) {
    std::vector<const char*> args;
    for (const std::string& o : options) args.push_back(o.c_str());
    return n_.compile(program_, static_cast<int>(args.size()), args.data());
  }
  std::string log_text() const { return text(n_.log_size, n_.log); }
  std::string cubin() const { return text(n_.cubin_size, n_.cubin); }
  void check(int result, const std::string& name) const {
    KILN_CHECK(result == 0, compile, "cuda compiler: NVRTC {} fails on {}: {}", n_.version_text(), name,
               n_.error_string(result));
  }

 private:
  std::string text(int (*size)(Program, size_t*), int (*get)(Program, char*)) const {
    size_t n = 0;
    if (size(program_, &n) != 0) return "";
    std::string s(n, '\0');
    return get(program_, s.data()) == 0 ? s : "";
  }
  const Nvrtc& n_;
  Program program_ = nullptr;
};

/// `lines`: of the kernels of any module.
[[noreturn]] void throw_failed(const CudaModule& module, const std::string& arch, const char* result,
                               const std::string& log_text, const KernelLines& lines) {
  KernelLines own;
  for (const CudaKernel& k : module.kernels) {
    const auto found = lines.find(k.symbol);
    own[k.symbol] = found == lines.end() ? "" : found->second;
  }
  throw Error(ErrorKind::compile,
              fmt::format("cuda compiler: {} does not compile for {} ({}); its source is kept in {}{}\n{}",
                          module.name, arch, result, keep_failed_source(module.name, module.source, own),
                          lines_text(own), log_text));
}

void compile_one(CudaModule& module, const std::string& arch, const KernelLines& lines) {
  const Nvrtc& n = nvrtc();
  OneCompile program(n, module);
  const int result = program.run(flags(arch));
  std::string log_text = program.log_text();
  while (!log_text.empty() && log_text.back() == '\0') log_text.pop_back();
  if (result != 0) throw_failed(module, arch, n.error_string(result), log_text, lines);
  module.cubin = program.cubin();
  KILN_CHECK(!module.cubin.empty(), compile, "cuda compiler: NVRTC {} made nothing of {} for {}",
             n.version_text(), module.name, arch);
  detail::read_ptxas_log(log_text, module.kernels);
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// Takes the number that `text` ends in before `what`; `fallback` where there is none.
int number_before(std::string_view line, std::string_view what, int fallback) {
  const size_t at = line.find(what);
  if (at == std::string_view::npos) return fallback;
  size_t from = at;
  while (from > 0 && line[from - 1] >= '0' && line[from - 1] <= '9') --from;
  int n = fallback;
  std::from_chars(line.data() + from, line.data() + at, n);
  return n;
}

}  // namespace

namespace detail {

void read_ptxas_log(std::string_view log, std::vector<CudaKernel>& kernels) {
  CudaKernel* current = nullptr;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    constexpr std::string_view kEntry = "Compiling entry function '";
    if (const size_t at = line.find(kEntry); at != std::string_view::npos) {
      const std::string_view rest = line.substr(at + kEntry.size());
      const std::string_view name = rest.substr(0, rest.find('\''));
      const auto it =
          std::find_if(kernels.begin(), kernels.end(), [&](const CudaKernel& k) { return k.symbol == name; });
      current = it == kernels.end() ? nullptr : &*it;
    }
    if (!current) continue;
    if (line.find("bytes spill stores") != std::string_view::npos)
      current->spill_bytes =
          number_before(line, " bytes spill stores", 0) + number_before(line, " bytes spill loads", 0);
    current->registers = number_before(line, " registers", current->registers);
    current->static_shared = number_before(line, " bytes smem", current->static_shared);
  }
}

std::string pack_cubin(const CudaModule& module) {
  std::string s;
  for (const CudaKernel& k : module.kernels)
    s += fmt::format("{} {} {} {}\n", k.symbol, k.registers, k.spill_bytes, k.static_shared);
  return s + "\n" + module.cubin;
}

bool unpack_cubin(std::string_view payload, CudaModule& module) {
  std::vector<CudaKernel> kernels = module.kernels;
  for (CudaKernel& k : kernels) {
    std::string_view line = payload.substr(0, payload.find('\n'));
    payload.remove_prefix(std::min(payload.size(), line.size() + 1));
    if (!line.starts_with(k.symbol)) return false;
    line.remove_prefix(k.symbol.size());
    for (int* n : {&k.registers, &k.spill_bytes, &k.static_shared}) {
      if (!line.starts_with(" ")) return false;
      const auto [end, error] = std::from_chars(line.data() + 1, line.data() + line.size(), *n);
      if (error != std::errc()) return false;
      line.remove_prefix(static_cast<size_t>(end - line.data()));
    }
    if (!line.empty()) return false;
  }
  if (!payload.starts_with("\n") || payload.size() < 2) return false;
  module.kernels = std::move(kernels);
  module.cubin = payload.substr(1);
  return true;
}

}  // namespace detail

bool nvrtc_available(std::string* why) {
  try {
    nvrtc();
    return true;
  } catch (const Error& e) {
    if (why) *why = e.what();
    return false;
  }
}

std::string nvrtc_version() { return nvrtc().version_text(); }
std::vector<int> nvrtc_architectures() { return nvrtc().known; }

void check_cuda_arch(const std::string& arch) {
  const int number = arch_number(arch);
  KILN_CHECK(number > 0, invalid, "cuda compiler: '{}' is no architecture; expected one like sm_90a", arch);
  const Nvrtc& n = nvrtc();
  std::string known;
  for (const int k : n.known)
    if (k >= kLeastArch) known += fmt::format("{}sm_{}", known.empty() ? "" : ", ", k);
  KILN_CHECK(number >= kLeastArch, unsupported,
             "cuda compiler: {} is older than Kiln's kernels need; NVRTC {} and Kiln know {}", arch,
             n.version_text(), known);
  KILN_CHECK(std::binary_search(n.known.begin(), n.known.end(), number), unsupported,
             "cuda compiler: {} is {} NVRTC {} knows; it knows {} (install a newer CUDA toolkit, or set "
             "KILN_CUDA_PATH to the folder of one)",
             arch, number > n.known.back() ? "newer than" : "none that", n.version_text(), known);
}

std::string nvrtc_key(const std::string& arch) {
  std::string key = fmt::format("nvrtc {}\n{}\n", nvrtc_version(), arch);
  for (const std::string& f : flags(arch)) key += f + ' ';
  return key + fmt::format("\nprelude {}\n", prelude_digest(Prelude::cuda));
}

void compile_cuda(std::span<CudaModule> modules, const std::string& arch, DiskCache* cache, int threads,
                  BuildCost* cost, const std::function<void()>& go_on, const KernelLines& lines) {
  if (modules.empty()) return;
  check_cuda_arch(arch);
  const auto start = std::chrono::steady_clock::now();
  const std::string compiler = nvrtc_key(arch);
  std::atomic<int> compiled{0};
  // The longest first: one that began last would keep the others waiting.
  std::vector<size_t> order(modules.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return modules[a].source.size() > modules[b].source.size();
  });
  in_team(modules.size(), threads, [&](size_t i) {
    CudaModule& m = modules[order[i]];
    std::string key = compiler + m.name + '\n' + m.source;
    const auto take = [&](bool again) {
      const std::optional<std::string> hit = cache->load(kCubinKind, key, again);
      return hit && detail::unpack_cubin(*hit, m);
    };
    if (cache && take(false)) return;
    if (go_on) go_on();
    // Another process may be making it.
    const FileLock claim = cache ? cache->claim(kCubinKind, key, true) : FileLock();
    if (cache && take(true)) return;
    compile_one(m, arch, lines);
    ++compiled;
    if (cache) cache->store(kCubinKind, key, detail::pack_cubin(m));
  });
  if (!cost) return;
  cost->compiled += compiled;
  cost->cached += static_cast<int>(modules.size()) - compiled;
  cost->compile_ms += ms_since(start);
}

}  // namespace kiln
