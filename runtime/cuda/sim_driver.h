// SPDX-License-Identifier: Apache-2.0
// The driver's functions as the simulated machine answers them, and how each of them begins.
#pragma once

#include "runtime/cuda/sim_state.h"

namespace kiln::cuda::sim {

namespace api {
#define KILN_SIM_FUNCTION(member, name, parameters) Result member parameters;
KILN_CUDA_DRIVER_FUNCTIONS(KILN_SIM_FUNCTION)
#undef KILN_SIM_FUNCTION
Result load_source(Module* module, const CudaModule& source);
Result declare(const DeclaredAccess* accesses, size_t count);
Result forget(Address address, uint64_t bytes, Stream stream);
Result hold(Address address, uint64_t bytes, bool held);
std::string fault();
}  // namespace api

/// body(machine, lock), for calls that need no context.
template <class Body>
Result call(Body&& body) {
  Machine& m = machine();
  Lock lock(m.mutex);
  if (const Result r = m.begin_call()) return r;
  return body(m, lock);
}

/// body(machine, context, lock): the thread's current context, which no fault has ended.
template <class Body>
Result call_in_context(Body&& body) {
  return call([&](Machine& m, Lock& lock) {
    ContextObject* c = m.current();
    if (!c) return m.refuse(kInvalidContext, "no context is current on this thread");
    if (c->error) return m.refuse(c->error.code, c->error.text);
    return body(m, *c, lock);
  });
}

/// body(machine, stream, lock): a stream of the current context.
template <class Body>
Result call_on_stream(Stream handle, Body&& body) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock& lock) {
    StreamObject* s = m.stream(c, handle);
    if (!s) return m.refuse(kInvalidHandle, "no such stream in the current context");
    return body(m, *s, lock);
  });
}

/// The object that a handle names, or null.
template <class T>
T* find(std::map<const T*, std::unique_ptr<T>>& objects, const T* handle) {
  const auto at = objects.find(handle);
  return at == objects.end() ? nullptr : at->second.get();
}

}  // namespace kiln::cuda::sim
