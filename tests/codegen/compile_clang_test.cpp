// SPDX-License-Identifier: Apache-2.0
// C++ text -> object -> image -> running kernel, and what is said when a step fails.
#include "codegen/compile_clang.h"

#include <gmock/gmock.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "ir/base/error.h"
#include "ir/base/options.h"
#include "runtime/image.h"
#include "tests/codegen/kept_source.h"

namespace kiln {
namespace KILN_FILE {

using ::testing::HasSubstr;

// Sources that fail on purpose are kept in a folder that goes away.
class CompileClang : public ::testing::Test {
 protected:
  CompileClang() {
    set_option("KILN_DUMP", "source");
    set_option("KILN_DUMP_DIR", folder_);
  }
  ~CompileClang() override { std::filesystem::remove_all(folder_); }

 private:
  std::string folder_ = ::testing::TempDir() + "kiln-compile-test-" + std::to_string(getpid());
};

// y[i] = a*x[i] + y[i] over tasks of 1000 elements, with the scalar tail that odd sizes need.
std::string axpy_source(const std::string& name) {
  return R"(#include "kiln_cpu.h"
typedef float vf __attribute__((ext_vector_type(KILN_VECTOR_BYTES / 4), aligned(4)));
constexpr int64_t W = KILN_VECTOR_BYTES / 4;
KILN_KERNEL void )" +
         name + R"((void* const* b, const int64_t* dims, int64_t begin, int64_t end, void*) {
  const float* x = (const float*)b[0];
  float* y = (float*)b[1];
  const float a = *(const float*)b[2];
  const int64_t n = dims[0], last = end * 1000 < n ? end * 1000 : n;
  int64_t i = begin * 1000;
  for (; i + W <= last; i += W) *(vf*)(y + i) = a * *(const vf*)(x + i) + *(const vf*)(y + i);
  for (; i < last; ++i) y[i] = a * x[i] + y[i];
}
)";
}

std::string build(const std::vector<CpuSource>& sources, const std::vector<std::string>& names,
                  int threads = 1) {
  return link_shared(compile_objects(sources, host_target(), threads), names);
}

void expect_axpy(KernelFn fn, int64_t n, float a) {
  std::vector<float> x(n), y(n);
  for (int64_t i = 0; i < n; ++i) x[i] = std::sin(float(i)), y[i] = float(i % 7);
  std::vector<float> expected = y;
  for (int64_t i = 0; i < n; ++i) expected[i] = a * x[i] + expected[i];
  void* buffers[] = {x.data(), y.data(), &a};
  fn(buffers, &n, 0, (n + 999) / 1000, nullptr);
  EXPECT_EQ(y, expected) << "n = " << n;
}

TEST_F(CompileClang, CompilesLinksLoadsAndRuns) {
  const LoadedImage image(build({{"axpy.cpp", axpy_source("axpy"), {}}}, {"axpy"}));
  for (const int64_t n : {0, 1, 15, 16, 17, 999, 1000, 1001, 12345})
    expect_axpy(image.kernel("axpy"), n, 0.75f);
}

TEST_F(CompileClang, SameInputSameBytes) {
  const std::vector<CpuSource> s = {{"a.cpp", axpy_source("a"), {}}, {"b.cpp", axpy_source("b"), {}}};
  EXPECT_EQ(build(s, {"a", "b"}, 1), build(s, {"a", "b"}, 2));
}

// Batches of four and more precompile the prelude: not a byte may differ.
TEST_F(CompileClang, BatchesGiveTheBytesOfSingleCompiles) {
  std::vector<CpuSource> s;
  for (const char* name : {"a", "b", "c", "d", "e"})
    s.push_back({std::string(name) + ".cpp", axpy_source(name), {}});
  s[1].flags = {"-ffp-contract=fast"};
  s[2].text = "// Another first line.\n" + s[2].text;
  s[3].flags = {"-fno-unroll-loops"};
  const std::vector<std::string> batch = compile_objects(s, host_target(), 2);
  for (size_t i = 0; i < s.size(); ++i)
    EXPECT_EQ(batch[i], compile_objects({&s[i], 1}, host_target(), 1)[0]) << i;
}

TEST_F(CompileClang, BatchErrorsNameTheLineToo) {
  std::vector<CpuSource> s(4, {"bad.cpp", "#include \"kiln_cpu.h\"\n\nint f() { return undeclared; }\n", {}});
  try {
    compile_objects(s, host_target(), 2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("bad.cpp:3:18: error: use of undeclared identifier 'undeclared'"));
  }
}

TEST_F(CompileClang, ManyImagesAreDistinct) {
  std::vector<LoadedImage> images;
  for (int i = 0; i < 3; ++i)
    images.emplace_back(build({{"k.cpp",
                                R"(#include "kiln_cpu.h"
      KILN_KERNEL void k(void* const* b, const int64_t*, int64_t, int64_t, void*) { *(int*)b[0] = )" +
                                    std::to_string(i) + "; }",
                                {}}},
                              {"k"}));
  images.erase(images.begin());
  for (int i = 1; i < 3; ++i) {
    int out = -1;
    void* buffers[] = {&out};
    images[i - 1].kernel("k")(buffers, nullptr, 0, 1, nullptr);
    EXPECT_EQ(out, i);
  }
}

TEST_F(CompileClang, TwoThreadsCompileAndLinkAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([t] {
      for (int round = 0; round < 4; ++round) {
        const std::string name = "k" + std::to_string(t) + std::to_string(round);
        const LoadedImage image(build({{name + ".cpp", axpy_source(name), {}}}, {name}));
        expect_axpy(image.kernel(name), 1234, 1.5f);
      }
    });
  for (std::thread& t : threads) t.join();
}

TEST_F(CompileClang, ContractionOnlyWhereAsked) {
  const std::string text = R"(#include "kiln_cpu.h"
KILN_KERNEL void k(void* const* b, const int64_t*, int64_t, int64_t, void*) {
  float* x = (float*)b[0];
  x[3] = x[0] * x[1] + x[2];
})";
  const float a = 1.0f + 0x1p-12f;
  for (const bool fused : {false, true}) {
    const std::vector<std::string> flags =
        fused ? std::vector<std::string>{"-ffp-contract=fast"} : std::vector<std::string>{};
    const LoadedImage image(build({{"k.cpp", text, flags}}, {"k"}));
    float x[4] = {a, a, -1.0f, 0.0f};
    void* buffers[] = {x};
    image.kernel("k")(buffers, nullptr, 0, 1, nullptr);
    volatile float product = a * a;
    EXPECT_EQ(x[3], fused && host_target().has_fma ? std::fma(a, a, -1.0f) : product - 1.0f);
  }
}

TEST_F(CompileClang, CallsOfTheMathLibraryAreBound) {
  const LoadedImage image(build({{"k.cpp",
                                  R"(#include "kiln_cpu.h"
KILN_KERNEL void k(void* const* b, const int64_t* d, int64_t, int64_t, void*) {
  double* x = (double*)b[0];
  x[0] = __builtin_lgamma(x[0]);
  __builtin_memset(x + 1, 0, d[0]);
})",
                                  {}}},
                                {"k"}));
  double x[3] = {4.5, 1, 1};
  void* buffers[] = {x};
  const int64_t bytes = 8;
  image.kernel("k")(buffers, &bytes, 0, 1, nullptr);
  EXPECT_DOUBLE_EQ(x[0], std::lgamma(4.5));
  EXPECT_EQ(x[1], 0);
  EXPECT_EQ(x[2], 1);
}

// The message of the Error that f throws.
template <typename F>
std::string error_of(ErrorKind kind, F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing thrown";
  return "";
}

TEST_F(CompileClang, CompileErrorNamesTheKeptSource) {
  const std::string bad = "#include \"kiln_cpu.h\"\nint f() { return undeclared; }\n";
  const std::vector<CpuSource> sources = {
      {"good.cpp", axpy_source("g"), {}},
      {"bad.cpp", bad, {}, Prelude::cpu, {{"f", "net.cpp:3 net.cpp:4"}, {"g", ""}}}};
  const std::string what = error_of(ErrorKind::compile, [&] { compile_objects(sources, host_target(), 2); });
  EXPECT_THAT(what, HasSubstr("cpu compiler: bad.cpp does not compile; its source is kept in /"));
  EXPECT_THAT(what, HasSubstr("\nit computes net.cpp:3 net.cpp:4 (f)\n"));
  EXPECT_THAT(what, HasSubstr("bad.cpp:2:18: error: use of undeclared identifier 'undeclared'"));
  const std::string path = testing::kept_in(what);
  std::stringstream kept;
  kept << std::ifstream(path).rdbuf();
  EXPECT_EQ(kept.str(),
            "// bad.cpp does not compile.\n"
            "// Its kernels, and the user's lines that they compute:\n"
            "//   f: net.cpp:3 net.cpp:4\n"
            "//   g: no line is known\n"
            "// Each line has its number in the compiler's log.\n"
            "#line 1 \"bad.cpp\"\n"
            "/* 1 */ #include \"kiln_cpu.h\"\n"
            "/* 2 */ int f() { return undeclared; }\n");
}

TEST_F(CompileClang, NothingOfTheSystemCanBeIncluded) {
  for (const char* header : {"<vector>", "<stdint.h>", "\"/etc/passwd\""}) {
    const CpuSource s{"k.cpp", std::string("#include ") + header + "\n", {}};
    EXPECT_THAT(error_of(ErrorKind::compile,
                         [&] {
                           compile_objects({&s, 1}, host_target(), 1);
                         }),
                HasSubstr("file not found"));
  }
}

TEST_F(CompileClang, UnknownFlagIsACompileError) {
  const CpuSource s{"k.cpp", "int x;\n", {"-fno-math-errno"}};
  EXPECT_THAT(error_of(ErrorKind::compile,
                       [&] {
                         compile_objects({&s, 1}, host_target(), 1);
                       }),
              HasSubstr("unknown argument: '-fno-math-errno'"));
}

TEST_F(CompileClang, UndefinedSymbolsAreRefused) {
  const std::vector<CpuSource> s = {
      {"k.cpp",
       "#include \"kiln_cpu.h\"\nextern \"C\" int getpid();\n"
       "KILN_KERNEL void k(void* const* b, const int64_t*, int64_t, int64_t, void*) "
       "{ *(int*)b[0] = getpid(); }\n",
       {}}};
  EXPECT_THAT(error_of(ErrorKind::compile, [&] { build(s, {"k"}); }),
              HasSubstr("undefined symbol: getpid (kernels may only call what the allow list names)"));
}

TEST_F(CompileClang, MissingKernelsAndBadObjectsAreRefused) {
  const std::vector<CpuSource> s = {{"a.cpp", axpy_source("a"), {}}};
  EXPECT_THAT(error_of(ErrorKind::compile,
                       [&] {
                         build(s, {"a", "b"});
                       }),
              HasSubstr("kernel not defined: b (declare it with KILN_KERNEL)"));
  const std::vector<std::string> garbage = {"no object at all"}, names = {"a"};
  error_of(ErrorKind::compile, [&] { link_shared(garbage, names); });
  // A failed link leaves the linker usable.
  expect_axpy(LoadedImage(build(s, {"a"})).kernel("a"), 33, 2.0f);
}

/// What `f` leaves on stderr in a process of its own, which must live to say it and exit with 7.
template <typename F>
void survives(F&& f, const std::string& text) {
  EXPECT_EXIT(
      {
        try {
          f();
        } catch (const Error& e) {
          fputs(e.what(), stderr);
          _exit(7);
        }
        _exit(0);
      },
      ::testing::ExitedWithCode(7), text);
}

TEST_F(CompileClang, FatalErrorsOfTheCompilerAreErrors) {
  const CpuSource fatal = {"fatal.cpp", "#pragma clang __debug llvm_fatal_error\n", {}};
  const CpuSource good = {"axpy.cpp", axpy_source("axpy"), {}};
  survives(
      [&] {
        compile_objects({&fatal, 1}, host_target(), 1);
      },
      "fatal.cpp does not compile.*\nfatal error of the compiler: #pragma clang __debug llvm_fatal_error");
  // Nothing is compiled by what it left behind, on another thread either.
  survives(
      [&] {
        EXPECT_THROW(compile_objects({&fatal, 1}, host_target(), 1), Error);
        compile_objects({&good, 1}, host_target(), 1);
      },
      "axpy.cpp does not compile.*\nthe compiler broke down earlier in this process and cannot run again");
  const std::vector<CpuSource> several = {good, fatal, good, good, good};
  survives([&] { compile_objects(several, host_target(), 2); }, "does not compile");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // shadow memory needs the room
/// Takes all memory that a small limit allows, but for some.
void leave_memory(size_t mebibytes) {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  const auto limit = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (64 << 20));
  const rlimit now{limit, limit};
  setrlimit(RLIMIT_AS, &now);
  std::vector<void*> blocks(4096);
  size_t count = 0;
  while ((blocks[count] = malloc(1 << 20))) ++count;
  void* volatile last = nullptr;
  do last = malloc(1 << 10);
  while (last);
  for (size_t i = 0; i < mebibytes; ++i) free(blocks[--count]);
}

TEST_F(CompileClang, RunsOutOfMemoryWithAnError) {
  const CpuSource good = {"axpy.cpp", axpy_source("axpy"), {}};
  compile_objects({&good, 1}, host_target(), 1);  // opens the library
  for (const size_t mebibytes : {1, 2})
    survives(
        [&] {
          leave_memory(mebibytes);
          compile_objects({&good, 1}, host_target(), 1);
        },
        "axpy.cpp does not compile.*\n.*bad_alloc");
}
#endif

/// From here on this process may start no thread. The limit is no limit for root.
bool allow_no_threads() {
  rlimit one;
  one.rlim_cur = one.rlim_max = 1;
  return setrlimit(RLIMIT_NPROC, &one) == 0 && (geteuid() != 0 || setuid(65534) == 0);
}

TEST_F(CompileClang, GoesOnWithTheThreadsThatThereAre) {
  const std::vector<CpuSource> several(3, CpuSource{"axpy.cpp", axpy_source("axpy"), {}});
  compile_objects({&several[0], 1}, host_target(), 1);  // opens the library
  EXPECT_EXIT(_exit(allow_no_threads() && compile_objects(several, host_target(), 3).size() == 3 ? 7 : 1),
              ::testing::ExitedWithCode(7), "");
}

TEST_F(CompileClang, DamagedObjectsAreErrors) {
  const CpuSource good = {"axpy.cpp", axpy_source("axpy"), {}};
  const std::string object = compile_objects({&good, 1}, host_target(), 1)[0];
  const std::vector<std::string> names = {"axpy"};
  for (const size_t cut : {size_t{100}, object.size() / 2, object.size() - 64}) {
    survives([&] { link_shared(std::vector{object.substr(0, cut)}, names); }, "do not link");
  }
  for (size_t at = 16; at < 64; at += 5) {  // the ELF header
    std::string bad = object;
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    EXPECT_EXIT(
        {
          try {
            link_shared(std::vector{bad}, names);
          } catch (const Error&) {
          }
          _exit(7);
        },
        ::testing::ExitedWithCode(7), "")
        << at;
  }
}

std::vector<void (*)(int)> signal_handlers() {
  std::vector<void (*)(int)> handlers;
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    handlers.push_back(now.sa_handler);
  }
  return handlers;
}

// Before any test has linked; sanitizers have handlers of their own.
const std::vector<void (*)(int)> kHandlersAtStart = signal_handlers();

TEST_F(CompileClang, TheLinkerLeavesNoSignalHandlers) {
  build({{"axpy.cpp", axpy_source("axpy"), {}}}, {"axpy"});
  EXPECT_EQ(signal_handlers(), kHandlersAtStart);
}

TEST_F(CompileClang, StaticConstructorsAreRefused) {
  const std::vector<CpuSource> s = {
      {"k.cpp",
       "#include \"kiln_cpu.h\"\nstruct S { int* p; S(); };\nvoid* volatile sink;\nS::S() { sink = this; "
       "}\nS s;\n"
       "KILN_KERNEL void k(void* const*, const int64_t*, int64_t, int64_t, void*) {}\n",
       {}}};
  EXPECT_THAT(error_of(ErrorKind::compile, [&] { build(s, {"k"}); }),
              HasSubstr("static constructors and thread-locals are not allowed in kernels: .init_array"));
}

TEST_F(CompileClang, DuplicateKernelsAreRefused) {
  const std::vector<CpuSource> s = {{"a.cpp", axpy_source("a"), {}}, {"b.cpp", axpy_source("a"), {}}};
  EXPECT_THAT(error_of(ErrorKind::compile, [&] { build(s, {"a"}); }), HasSubstr("duplicate symbol: a"));
}

TEST_F(CompileClang, EveryTargetCompiles) {
  for (const char* name : {"host", "x86-64-v3", "x86-64-v4", "aarch64"}) {
    const CpuTarget target = parse_target(name);
    const CpuSource s{"axpy.cpp", axpy_source("axpy"), {}};
    const std::string image =
        link_shared(compile_objects({&s, 1}, target, 1), std::vector<std::string>{"axpy"});
    EXPECT_GT(image.size(), 0u) << name;
    EXPECT_THAT(compiler_key(target), HasSubstr(target.str()));
  }
}

}  // namespace KILN_FILE
}  // namespace kiln
