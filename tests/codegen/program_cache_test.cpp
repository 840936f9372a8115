// SPDX-License-Identifier: Apache-2.0
// Programs in the disk cache: what many processes that start at once make of one, and that an entry depends
// on its key alone.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "codegen/program.h"
#include "codegen/program_key.h"
#include "ir/base/options.h"
#include "tests/codegen/compiled.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;
using testing::execute;
constexpr int64_t kMegabyte = 1 << 20;

// Six kernels that do not fuse.
constexpr const char* kModel = R"(graph g {
  %0 = input f32[33,40] arg "x"
  %1 = input f32[40,50] param "w"
  %2 = input f32[] scalar "lr"
  %3 = f32[33,50] dot_general %0, %1 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(0)}
  %4 = f32[33,50] tanh %3
  %5 = f32[50] sum %4 {dims=(0)}
  %6 = f32[33] amax %4 {dims=(1)}
  %7 = f32[33,33] dot_general %4, %4 {batch_a=(), batch_b=(), contract_a=(1), contract_b=(1)}
  %8 = f32[40,50] dot_general %0, %4 {batch_a=(), batch_b=(), contract_a=(0), contract_b=(0)}
  %9 = f32[40,50] expand %2 {shape=[40,50]}
  %10 = f32[40,50] mul %8, %9
  %11 = f32[40,50] sub %1, %10
  output %5 "sums"
  output %6
  output %7
  output %11 alias=1 "w"
})";

class ProgramCache : public ::testing::Test {
 protected:
  ProgramCache() { fs::remove_all(root_); }
  ~ProgramCache() override { fs::remove_all(root_); }
  std::string root_ = ::testing::TempDir() + "kiln-program-cache-test-" + std::to_string(getpid());
  std::string cache_ = root_ + "/cache";
};

std::string slurp(const std::string& path) {
  std::stringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

/// kind/name -> bytes, of every file but what a killed process leaves.
std::map<std::string, std::string> files(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& file : fs::recursive_directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (fs::is_regular_file(file.symlink_status()) && name[0] != '.')
      out[file.path().parent_path().filename().string() + "/" + name] = slurp(file.path().string());
  }
  return out;
}

std::vector<HostTensor> inputs_of(const Graph& g) {
  std::vector<HostTensor> out;
  for (const GraphInput& in : g.inputs) {
    out.push_back(make_host_tensor(g.type(in.value).dtype, testing::values(g.type(in.value).shape)));
    for (int64_t i = 0; i < out.back().ref.numel(); ++i)
      static_cast<float*>(out.back().ref.data)[i] = static_cast<float>((i * 7 + 3) % 23) / 23 - 0.5f;
  }
  return out;
}

bool right(const Graph& g, const CompiledProgram& p) {
  const std::vector<HostTensor> in = inputs_of(g), want = interpret(g, in);
  const std::vector<HostTensor> got = execute(g, *testing::load(p).exe, in, 1);
  for (size_t i = 0; i < want.size(); ++i)
    if (!testing::difference(got[i], want[i], 64).empty()) return false;
  return true;
}

/// A process that compiles the model through the cache, with its log in `log`. Exit status 0: and it is
/// right.
pid_t start(const std::string& cache, const std::string& log,
            std::chrono::milliseconds patience = std::chrono::seconds(10)) {
  const pid_t child = fork();
  if (child != 0) return child;
  const int fd = open(log.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  if (dup2(fd, 2) < 0) _exit(3);
  set_option("KILN_LOG", "debug");
  try {
    const Graph g = parse_graph(kModel);
    DiskCache disk(cache, 100 * kMegabyte, patience);
    _exit(right(g, compile_program(g, {}, host_target(), {}, &disk, 1)) ? 0 : 1);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    _exit(2);
  }
}

/// Whether the process has a file of the cache open that is not there under its name yet.
bool writes(pid_t process, const std::string& cache) {
  std::error_code ec;
  for (fs::directory_iterator it(fmt::format("/proc/{}/fd", process), ec), end; !ec && it != end;
       it.increment(ec)) {
    std::error_code gone;
    const std::string file = fs::read_symlink(it->path(), gone).string();
    if (file.starts_with(cache) && file.ends_with(".tmp")) return true;
  }
  return false;
}

/// Kills the process while it writes to the cache. False: it has ended before, which `status` tells.
bool kill_while_it_writes(pid_t process, const std::string& cache, int& status) {
  while (true) {
    usleep(50);
    if (writes(process, cache)) kill(process, SIGSTOP);
    if (waitpid(process, &status, WUNTRACED | WNOHANG) != process) continue;
    if (!WIFSTOPPED(status)) return false;
    if (!writes(process, cache)) {
      kill(process, SIGCONT);
      continue;
    }
    kill(process, SIGKILL);
    return waitpid(process, &status, 0) == process;
  }
}

/// Starts eight; with `kill_one`, ends the first while it writes. True if that worked out.
bool run_eight(const std::string& root, bool kill_one) {
  constexpr int kProcesses = 8;
  pid_t children[kProcesses];
  for (int p = 0; p < kProcesses; ++p) children[p] = start(root + "/cache", fmt::format("{}/log{}", root, p));
  int status = 0;
  const bool killed = kill_one && kill_while_it_writes(children[0], fs::canonical(root) / "cache", status);
  for (int p = kill_one ? 1 : 0; p < kProcesses; ++p) {
    waitpid(children[p], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "process " << p << ": " << slurp(fmt::format("{}/log{}", root, p));
  }
  return killed;
}

/// How often each kernel was compiled, by all processes together.
std::map<std::string, int> compiles(const std::string& root) {
  std::map<std::string, int> out;
  for (int p = 0; p < 8; ++p) {
    std::istringstream log(slurp(fmt::format("{}/log{}", root, p)));
    for (std::string line; std::getline(log, line);) {
      EXPECT_EQ(line.find("error"), line.npos) << line;
      EXPECT_EQ(line.find("warning"), line.npos) << line;
      if (line.starts_with("kiln debug: compiled ")) ++out[line];
    }
  }
  return out;
}

int most(const std::map<std::string, int>& counts) {
  int out = 0;
  for (const auto& [name, n] : counts) out = std::max(out, n);
  return out;
}

void damage(const std::string& path, int how) {
  std::string bytes = slurp(path);
  if (how == 0) fs::resize_file(path, bytes.size() / 2);
  if (how == 1) {
    bytes[bytes.size() / 2] ^= 1;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  if (how == 2) {  // that nobody can read, root included
    fs::remove(path);
    fs::create_symlink(path, path);
  }
}

// K23
TEST_F(ProgramCache, EightProcessesOneKilledThenThreeEntriesDamaged) {
  bool killed_while_writing = false;
  for (int tries = 0; tries < 10 && !killed_while_writing; ++tries) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    killed_while_writing = run_eight(root_, true);
    ASSERT_FALSE(HasFailure());
  }
  ASSERT_TRUE(killed_while_writing);
  const std::map<std::string, int> first = compiles(root_);
  EXPECT_LE(most(first), 2);
  const std::map<std::string, std::string> entries = files(cache_);
  EXPECT_EQ(entries.size(), first.size() + 1) << "an object of each kernel, and the plan";

  int how = 0;
  for (const char* kind : {"plan/", "object/", "object/"}) {
    auto entry = entries.lower_bound(kind);
    std::advance(entry, how == 2);
    damage(cache_ + "/" + entry->first, how++);
  }
  run_eight(root_, false);
  const std::map<std::string, int> second = compiles(root_);
  EXPECT_EQ(second.size(), 2);
  EXPECT_LE(most(second), 2);
  EXPECT_EQ(files(cache_), entries) << "the same bytes again";

  run_eight(root_, false);
  EXPECT_EQ(compiles(root_).size(), 0);
}

TEST_F(ProgramCache, AStoppedProcessDelaysOthersAndNoMore) {
  fs::create_directories(root_);
  const pid_t stopped = start(cache_, root_ + "/log0");
  while (!fs::exists(cache_ + "/object")) usleep(50);
  kill(stopped, SIGSTOP);
  const pid_t other = start(cache_, root_ + "/log1", std::chrono::milliseconds(300));
  int status = -1;
  waitpid(other, &status, 0);
  EXPECT_EQ(status, 0) << slurp(root_ + "/log1");
  kill(stopped, SIGCONT);
  waitpid(stopped, &status, 0);
  EXPECT_EQ(status, 0) << slurp(root_ + "/log0");
  EXPECT_LE(most(compiles(root_)), 2);
}

TEST_F(ProgramCache, ReadOnlyFolderServesAndIsNotWaitedFor) {
  const Graph g = parse_graph(kModel);
  fs::create_directories(root_);
  std::ofstream(root_ + "/file") << "in the way";
  DiskCache cache(root_ + "/file/cache", kMegabyte);
  EXPECT_EQ(cache.claim("plan", "key", true).state(), FileLock::State::unavailable);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(right(g, compile_program(g, {}, host_target(), {}, &cache, 2)));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("cannot be written"));
  EXPECT_THAT(cache.store_error(), ::testing::HasSubstr("Not a directory"));
}

TEST_F(ProgramCache, EntriesDependOnTheirKeyAlone) {
  const Graph g = parse_graph(kModel);
  // The same program as another model has it: other names, and an input that came last.
  Graph other;
  std::vector<Value> to;
  for (const char* name : {"a", "b"})
    to.push_back(other.add_input(g.type(Value{static_cast<int>(to.size())}), g.inputs[to.size()].kind, name));
  to.push_back(Value{});
  for (const Node& n : g.nodes) {
    if (n.op == op("expand")) to[2] = other.add_input(g.type(Value{2}), InputKind::scalar, "s");
    std::vector<Value> in;
    for (Value v : n.in) in.push_back(to[static_cast<size_t>(v.id)]);
    to.push_back(other.add_node(n.op, in, n.attrs, {{"net.cpp", 42}, other.intern_scope("blocks.0/mlp")}));
  }
  for (const GraphOutput& o : g.outputs)
    other.add_output(to[static_cast<size_t>(o.value.id)], o.alias_input, "o");
  ASSERT_NE(print(other), print(g));
  DiskCache one(root_ + "/one", 100 * kMegabyte), two(root_ + "/two", 100 * kMegabyte);
  const CompiledProgram first = compile_program(g, {}, host_target(), {}, &one, 1);
  const CompiledProgram second = compile_program(other, {}, host_target(), {}, &two, 4);
  EXPECT_EQ(files(one.folder()), files(two.folder()));
  // Half of the objects are there: the others are compiled in another company.
  for (int i = 0; i < 3; ++i) {
    const std::string object = two.folder() + "/" + files(two.folder()).begin()->first;
    fs::remove(object);
  }
  fs::remove_all(two.folder() + "/plan");
  compile_program(g, {}, host_target(), {}, &two, 1);
  EXPECT_EQ(files(one.folder()), files(two.folder()));

  // Names are those of the graph at hand, cold and warm alike.
  const CompiledProgram warm = compile_program(other, {}, host_target(), {}, &one, 1);
  EXPECT_TRUE(warm.stats.from_cache);
  EXPECT_EQ(print(warm.plan), print(second.plan));
  EXPECT_NE(print(warm.plan), print(first.plan));
  EXPECT_EQ(warm.plan.profile[0].name, "mlp");
  EXPECT_EQ(first.plan.buffers[1].name, "w");
  EXPECT_EQ(warm.plan.buffers[1].name, "b");
}

}  // namespace KILN_FILE
}  // namespace kiln
