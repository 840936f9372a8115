// SPDX-License-Identifier: Apache-2.0
// libkiln_jit.so: compiles C++ text to objects with clang and links them with lld, all in memory. The only
// file that includes LLVM headers (they cost 24 s of compile time). It must not include any other header of
// Kiln, touch cl::opt switches, install signal handlers, or let an exception out.
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <clang/Basic/Diagnostic.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/FrontendAction.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Serialization/ASTWriter.h>
#include <lld/Common/Driver.h>
#include <llvm-c/Target.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/CrashRecoveryContext.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/clang/jit_abi.h"

LLD_HAS_DRIVER(elf)

namespace kiln::jit {
namespace {

// lld resets every cl::opt of the process when it starts, and compiles read them: a link excludes all else.
std::shared_mutex llvm_mutex;

struct Owned {
  std::string bytes, log;
};

// LLVM is built without exceptions. What leaves it by one, memory that ran out or a fatal error, unwinds its
// frames without their destructors, perhaps with a lock held: nothing of it may be destroyed or used again.
std::atomic<bool> broken{false};

void check_usable() {
  if (broken)
    throw std::runtime_error("the compiler broke down earlier in this process and cannot run again\n");
}

llvm::StringRef ref(const Bytes& b) { return {b.data, b.size}; }

void init_target() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();
    // The other one that kernels are written for, so that they are compiled for it wherever they are tested.
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
    // Both end the process otherwise.
    llvm::install_fatal_error_handler([](void*, const char* reason, bool) {
      throw std::runtime_error(std::string("fatal error of the compiler: ") + reason + "\n");
    });
    llvm::install_bad_alloc_error_handler([](void*, const char*, bool) { throw std::bad_alloc(); });
  });
}

// ---- compile ----

using Files = llvm::IntrusiveRefCntPtr<llvm::vfs::InMemoryFileSystem>;

std::string path_of(const Bytes& name) { return "/kiln/" + ref(name).str(); }

// The only files there are.
Files make_files(const CompileInput& in) {
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  files->setCurrentWorkingDirectory("/kiln");
  const auto add = [&](const File& f) {
    files->addFile(path_of(f.name), 0, llvm::MemoryBuffer::getMemBufferCopy(ref(f.text)));
  };
  add(in.source);
  for (size_t i = 0; i < in.file_count; ++i) add(in.files[i]);
  return files;
}

// Runs `action` over one file with the arguments of `in` and some more; what the compiler says goes to `log`.
bool try_clang(clang::CompilerInstance& ci, const CompileInput& in, std::vector<const char*> more,
               const Files& files, clang::FrontendAction& action, std::string& log) {
  llvm::raw_string_ostream stream(log);
  auto options = llvm::makeIntrusiveRefCnt<clang::DiagnosticOptions>();
  ci.createDiagnostics(new clang::TextDiagnosticPrinter(stream, options.get()));
  // Otherwise "2 errors generated." goes to stderr whatever the diagnostics do.
  ci.setVerboseOutputStream(std::make_unique<llvm::raw_null_ostream>());
  std::vector<const char*> args(in.args, in.args + in.arg_count);
  args.insert(args.end(), more.begin(), more.end());
  if (!clang::CompilerInvocation::CreateFromArgs(ci.getInvocation(), args, ci.getDiagnostics())) return false;
  ci.createFileManager(files);
  return ci.ExecuteAction(action) && !ci.getDiagnostics().hasErrorOccurred();
}

// The same, on an action and an instance that `prepare` may set up; `done` looks at the action. Both stay
// behind when clang breaks down.
template <typename Action, typename Prepare, typename Done>
bool run_clang(const CompileInput& in, std::vector<const char*> more, const Files& files, std::string& log,
               Prepare&& prepare, Done&& done) {
  check_usable();
  auto ci = std::make_unique<clang::CompilerInstance>();
  auto action = std::make_unique<Action>();
  try {
    prepare(*ci);
    const bool ok = try_clang(*ci, in, std::move(more), files, *action, log);
    if (ok) done(*action);
    return ok;
  } catch (...) {
    broken = true;
    ci.release();      // NOLINT: leaked
    action.release();  // NOLINT: leaked
    throw;
  }
}

// Writes a precompiled header to memory; clang's own action writes a file.
class PrecompileAction : public clang::ASTFrontendAction {
 public:
  std::shared_ptr<clang::PCHBuffer> result = std::make_shared<clang::PCHBuffer>();

 protected:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance& ci,
                                                        llvm::StringRef) override {
    return std::make_unique<clang::PCHGenerator>(
        ci.getPreprocessor(), ci.getModuleCache(), "prefix.pch", "", result,
        llvm::ArrayRef<std::shared_ptr<clang::ModuleFileExtension>>(), /*AllowASTWithErrors=*/false,
        /*IncludeTimestamps=*/false);
  }
  clang::TranslationUnitKind getTranslationUnitKind() override { return clang::TU_Prefix; }
  bool hasASTFileSupport() const override { return false; }
};

// The precompiled form of in.prefix under these arguments; null as long as too few sources have been seen to
// repay it, and if it does not compile, which the source's own #include will then report. Each is made once
// and stays for the life of the process.
const std::string* precompiled(const CompileInput& in) {
  struct Prefix {
    size_t sources = 0;
    bool tried = false;
    std::string bytes;
  };
  constexpr size_t kWorthFrom = 4;  // making one costs as much as parsing the prefix twice
  static std::mutex mutex;
  static std::map<std::string, Prefix> prefixes;
  std::string key;
  for (size_t i = 0; i < in.arg_count; ++i) (key += in.args[i]) += '\n';
  for (size_t i = 0; i < in.file_count; ++i) key += ref(in.files[i].text);
  const std::lock_guard lock(mutex);
  Prefix& prefix = prefixes[std::move(key)];
  const size_t known = prefix.sources++ + in.together;
  const auto made = [&] { return prefix.bytes.empty() ? nullptr : &prefix.bytes; };
  if (prefix.tried || known < kWorthFrom) return made();
  prefix.tried = true;
  std::string log;
  const std::string header = path_of(in.prefix);
  run_clang<PrecompileAction>(
      in, {"-x", "c++-header", header.c_str()}, make_files(in), log, [](clang::CompilerInstance&) {},
      [&](const PrecompileAction& action) {
        const clang::PCHBuffer& made_now = *action.result;
        if (made_now.IsComplete) prefix.bytes.assign(made_now.Data.begin(), made_now.Data.end());
      });
  return made();
}

bool compile(const CompileInput& in, Owned& out) {
  init_target();
  const std::shared_lock lock(llvm_mutex);
  const std::string main = path_of(in.source.name);
  const Files files = make_files(in);
  std::vector<const char*> more;
  if (in.prefix.size > 0) {
    if (const std::string* prefix = precompiled(in)) {
      files->addFile("/kiln/prefix.pch", 0, llvm::MemoryBuffer::getMemBuffer(*prefix));
      more = {"-include-pch", "/kiln/prefix.pch"};
    }
  }
  more.insert(more.end(), {"-x", "c++", main.c_str()});
  auto object = std::make_unique<llvm::SmallString<0>>();
  const auto write_to_object = [&](clang::CompilerInstance& ci) {
    ci.setOutputStream(std::make_unique<llvm::raw_svector_ostream>(*object));
  };
  const bool ok = run_clang<clang::EmitObjAction>(in, more, files, out.log, write_to_object,
                                                  [](const clang::EmitObjAction&) {});
  out.bytes.assign(object->begin(), object->end());
  return ok;
}

// ---- link ----

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

class Fd {
 public:
  Fd(int fd, const char* what) : fd_(fd) {
    if (fd < 0) fail(what);
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  // The name under which lld opens it.
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

Fd input_file(llvm::StringRef bytes) {
  Fd fd(memfd_create("kiln-link", MFD_CLOEXEC), "memfd_create");
  while (!bytes.empty()) {
    const ssize_t n = write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) fail("write to a memory file");
    if (n > 0) bytes = bytes.drop_front(n);
  }
  return fd;
}

// Takes lld's output from a pipe. Given a regular file lld makes another beside it and renames that; into a
// pipe it just writes. The end is told by an event, not by closing: a child forked meanwhile would hold the
// pipe open.
class OutputPipe {
 public:
  OutputPipe() : stop_(eventfd(0, EFD_CLOEXEC), "eventfd") {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
    read_.emplace(ends[0], "pipe");
    write_.emplace(ends[1], "pipe");
    reader_ = std::thread([this] { drain(); });
  }
  ~OutputPipe() {
    if (reader_.joinable()) finish();
  }
  std::string path() const { return write_->path(); }
  // All that was written; lld must have returned.
  std::string finish() {
    const uint64_t one = 1;
    if (write(stop_.get(), &one, sizeof one) != sizeof one) std::terminate();
    reader_.join();
    return std::move(bytes_);
  }

 private:
  void drain() {
    char block[1 << 16];
    pollfd fds[2] = {{read_->get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (true) {
      if (poll(fds, 2, -1) < 0) continue;
      const ssize_t n = fds[0].revents & POLLIN ? read(read_->get(), block, sizeof block) : 0;
      if (n > 0) bytes_.append(block, n);
      if (n == 0 && fds[1].revents) return;
    }
  }
  Fd stop_;
  std::optional<Fd> read_, write_;
  std::string bytes_;
  std::thread reader_;
};

// lld leaves by exit() on what it calls fatal, unless crash recovery is on; then lldMain returns. Recovery
// comes with signal handlers, which are the program's business: they are put back at once.
void let_lld_return() {
  static std::once_flag once;
  std::call_once(once, [] {
    constexpr int kSignals[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
    struct sigaction before[std::size(kSignals)];
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], nullptr, &before[i]);
    llvm::CrashRecoveryContext::Enable();
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before[i], nullptr);
  });
}

bool run_lld(const std::vector<std::string>& args, std::string& log) {
  static bool usable = true;
  if (!usable) {
    log += "lld broke down in an earlier link of this process and cannot run again\n";
    return false;
  }
  let_lld_return();
  std::vector<const char*> argv;
  for (const std::string& a : args) argv.push_back(a.c_str());
  llvm::raw_string_ostream stream(log);
  const lld::Result r = lld::lldMain(argv, stream, stream, {{lld::Gnu, &lld::elf::link}});
  usable = r.canRunAgain;
  return r.retCode == 0;
}

// Kernels are loaded without a runtime of their own: all that they import is named, and nothing runs at load
// time.
bool check_image(const LinkInput& in, const std::string& image, std::string& log) {
  const size_t before = log.size();
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(image, "image"));
  if (!file) {
    log += "lld wrote no readable image: " + llvm::toString(file.takeError()) + "\n";
    return false;
  }
  const auto* elf = llvm::dyn_cast<llvm::object::ELFObjectFileBase>(file->get());
  std::set<llvm::StringRef> imports, defined;
  for (size_t i = 0; i < in.import_count; ++i) imports.insert(ref(in.imports[i]));
  for (const llvm::object::ELFSymbolRef symbol : elf->getDynamicSymbolIterators()) {
    const llvm::StringRef name = llvm::cantFail(symbol.getName());
    const bool undefined = llvm::cantFail(symbol.getFlags()) & llvm::object::SymbolRef::SF_Undefined;
    if (!undefined) defined.insert(name);
    if (undefined && !name.empty() && !imports.count(name))
      log += "undefined symbol: " + name.str() + " (kernels may only call what the allow list names)\n";
  }
  for (size_t i = 0; i < in.export_count; ++i)
    if (!defined.count(ref(in.exports[i])))
      log += "kernel not defined: " + ref(in.exports[i]).str() + " (declare it with KILN_KERNEL)\n";
  for (const llvm::object::ELFSectionRef section : elf->sections()) {
    const uint64_t type = section.getType();
    const bool runs = type == llvm::ELF::SHT_INIT_ARRAY || type == llvm::ELF::SHT_FINI_ARRAY;
    if (runs || (section.getFlags() & llvm::ELF::SHF_TLS))
      log += "static constructors and thread-locals are not allowed in kernels: " +
             llvm::cantFail(section.getName()).str() + "\n";
  }
  return log.size() == before;
}

bool link(const LinkInput& in, Owned& out) {
  const std::unique_lock lock(llvm_mutex);
  check_usable();
  std::string script = "{ global: ";
  for (size_t i = 0; i < in.export_count; ++i) script += ref(in.exports[i]).str() + "; ";
  script += "local: *; };\n";
  const Fd version_script = input_file(script);
  std::vector<Fd> objects;
  for (size_t i = 0; i < in.object_count; ++i) objects.push_back(input_file(ref(in.objects[i])));
  OutputPipe image;

  std::vector<std::string> args = {"ld.lld",
                                   "-shared",
                                   "--threads=1",
                                   "-nostdlib",
                                   "-Bsymbolic",
                                   "--hash-style=gnu",
                                   "--build-id=none",
                                   "-znow",
                                   "-znoexecstack",
                                   "--gc-sections",
                                   "--undefined-version",  // check_image says it better
                                   "--version-script=" + version_script.path(),
                                   "-o",
                                   image.path()};
  for (const Fd& o : objects) args.push_back(o.path());
  if (!run_lld(args, out.log)) return false;
  out.bytes = image.finish();
  return check_image(in, out.bytes, out.log);
}

// ---- the C side ----

template <typename Input>
int guarded(bool (*work)(const Input&, Owned&), const Input* input, Output* output) {
  *output = {};
  auto* owned = new (std::nothrow) Owned;
  if (!owned) return 1;
  bool ok = false;
  try {
    ok = work(*input, *owned);
  } catch (const std::exception& e) {
    owned->log += e.what();
  } catch (...) {
    owned->log += "an exception of unknown type";
  }
  *output = {{owned->bytes.data(), owned->bytes.size()}, {owned->log.data(), owned->log.size()}, owned};
  return ok ? 0 : 1;
}

int compile_c(const CompileInput* input, Output* output) { return guarded(compile, input, output); }
int link_c(const LinkInput* input, Output* output) { return guarded(link, input, output); }
void release_c(Output* output) {
  delete static_cast<Owned*>(output->owner);
  *output = {};
}

constexpr Api kApi = {kAbiVersion, LLVM_VERSION_STRING, compile_c, link_c, release_c};

}  // namespace
}  // namespace kiln::jit

extern "C" __attribute__((visibility("default"))) const kiln::jit::Api* kiln_jit_api() {
  return &kiln::jit::kApi;
}
