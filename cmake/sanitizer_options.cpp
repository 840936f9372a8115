// SPDX-License-Identifier: Apache-2.0
// What the sanitizers are told in every program of a build with KILN_SANITIZE, whoever starts it, in whatever
// environment. The runtimes look for these names.

extern "C" {

/// The leak checker crashes in the thread-local storage of LLVM's threads unless told to let it be.
const char* __asan_default_options() {
  // Where memory came from, in few frames: remembering thirty for each piece is half of the time.
  return "intercept_tls_get_addr=0:malloc_context_size=6";
}

/// So does this one: it takes what lies before a thread's block for the block's size.
const char* __tsan_default_options() { return "intercept_tls_get_addr=0"; }

const char* __ubsan_default_options() { return "print_stacktrace=1:halt_on_error=1"; }

const char* __tsan_default_suppressions() {
  return
      // Gloo's library is not instrumented. Its buffers wait in their destructor, by the count of a
      // shared_ptr, for the thread that uses them; the checker does not see that count. Races on the memory
      // of messages stay visible.
      "race:gloo::transport::tcp::UnboundBuffer::~UnboundBuffer\n"
      "race:std::default_delete<gloo::transport::UnboundBuffer>::operator()\n"
      // Nor are LLVM and clang: what orders their threads (an atomic pointer to a table made once) is not
      // seen either.
      "race:libLLVM\n"
      "race:libclang-cpp\n"
      // Nor is NVIDIA's compiler: it makes its mutexes when the first thread wants them, and the checker sees
      // the others lock memory that nobody handed them. Of NVRTC and its builtins, so not called_from_lib,
      // which is for one library. Kiln's own memory that it is given is reported where Kiln touches it.
      "race:libnvrtc\n";
}
}
