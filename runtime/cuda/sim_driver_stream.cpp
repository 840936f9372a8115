// SPDX-License-Identifier: Apache-2.0
// Streams, events, host functions, capture and graphs.
#include <chrono>

#include "runtime/cuda/sim_capture.h"
#include "runtime/cuda/sim_driver.h"

namespace kiln::cuda::sim {

namespace {

// body(machine, event, lock)
template <class Body>
Result call_on_event(Event handle, Body&& body) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock& lock) {
    EventObject* e = find(c.events, handle);
    if (!e) return m.refuse(kInvalidHandle, "no such event in the current context");
    return body(m, *e, lock);
  });
}

// Work that somebody asks about, again and again perhaps: a little of it is done each time.
Result query(Machine& m, ContextObject& c, const WorkPtr& work, Lock& lock) {
  if (!is_done(work)) m.advance(work, lock);
  if (c.error) return c.error.code;
  if (!is_done(work)) return kNotReady;
  return m.synchronize(c, work, lock);
}

Result check_waitable(Machine& m, const EventObject& e, const char* what) {
  if (e.capture)
    return m.refuse(kCapturedEvent, fmt::format("{}: the event was last recorded in a capture", what));
  return check_unsafe(what);
}

}  // namespace

namespace api {

Result stream_create(Stream* stream, unsigned flags, int) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    if (flags > kStreamNonBlocking) return m.refuse(kInvalidValue, fmt::format("stream flags {}", flags));
    auto s = std::make_unique<StreamObject>();
    s->context = &c;
    s->number = m.streams++;
    s->blocking = flags != kStreamNonBlocking;
    *stream = s.get();
    c.streams[s.get()] = std::move(s);
    return kSuccess;
  });
}

Result stream_destroy(Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    ContextObject& c = *s.context;
    if (&s == &c.legacy) return m.refuse(kInvalidHandle, "the legacy stream cannot be destroyed");
    capture_leave(s);
    // Its work still runs; nobody can wait for it by name any more.
    if (s.last) m.finish(WorkPtr(s.last), lock);
    c.streams.erase(&s);
    return kSuccess;
  });
}

Result stream_synchronize(Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    if (s.capture) return forbid_in_capture(s.capture, "cuStreamSynchronize");
    if (const Result r = check_legacy(s)) return r;
    if (const Result r = check_unsafe("cuStreamSynchronize")) return r;
    ++m.host_waits;
    ContextObject& c = *s.context;
    const WorkPtr last = s.last;
    if (&s != &c.legacy) return m.synchronize(c, last, lock);
    for (const auto& [key, other] : c.streams)
      if (other->blocking) m.synchronize(c, WorkPtr(other->last), lock);
    return m.synchronize(c, last, lock);
  });
}

Result stream_query(Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    if (s.capture) return forbid_in_capture(s.capture, "cuStreamQuery");
    if (const Result r = check_unsafe("cuStreamQuery")) return r;
    return query(m, *s.context, WorkPtr(s.last), lock);
  });
}

Result stream_wait(Stream stream, Event event, unsigned) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    EventObject* e = nullptr;
    for (const auto& c : m.contexts)
      if (c && !e) e = find(c->events, event);
    if (!e) return m.refuse(kInvalidHandle, "no such event");
    if (s.capture || e->capture) return capture_wait(s, *e);
    return e->work ? m.submit(s, Mark{}, lock, e->work) : kSuccess;
  });
}

Result event_create(Event* event, unsigned flags) {
  return call_in_context([&](Machine&, ContextObject& c, Lock&) {
    auto e = std::make_unique<EventObject>();
    e->context = &c;
    e->timing = !(flags & kEventDisableTiming);
    *event = e.get();
    c.events[e.get()] = std::move(e);
    return kSuccess;
  });
}

Result event_destroy(Event event) {
  return call_on_event(event, [&](Machine&, EventObject& e, Lock&) {
    e.context->events.erase(&e);
    return kSuccess;
  });
}

Result event_record(Event event, Stream stream) {
  return call_on_event(event, [&](Machine& m, EventObject& e, Lock& lock) {
    StreamObject* s = m.stream(*e.context, stream);
    if (!s) return m.refuse(kInvalidHandle, "no such stream in the current context");
    if (s->capture) {
      if (s->capture->invalid) return forbid_in_capture(s->capture, "cuEventRecord");
      capture_record(*s, e);
      return kSuccess;
    }
    const Result r = m.submit(*s, Mark{}, lock);
    if (r) return r;
    e.work = s->last;
    e.capture = nullptr;
    e.nodes.clear();
    return kSuccess;
  });
}

Result event_query(Event event) {
  return call_on_event(event, [&](Machine& m, EventObject& e, Lock& lock) {
    if (const Result r = check_waitable(m, e, "cuEventQuery")) return r;
    return query(m, *e.context, WorkPtr(e.work), lock);
  });
}

Result event_synchronize(Event event) {
  return call_on_event(event, [&](Machine& m, EventObject& e, Lock& lock) {
    if (const Result r = check_waitable(m, e, "cuEventSynchronize")) return r;
    ++m.host_waits;
    return m.synchronize(*e.context, WorkPtr(e.work), lock);
  });
}

Result event_elapsed(float* ms, Event start, Event end) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    const EventObject* a = find(c.events, start);
    const EventObject* b = find(c.events, end);
    if (!a || !b || !a->timing || !b->timing || !a->work || !b->work)
      return m.refuse(kInvalidHandle, "elapsed time needs two events that were recorded and that keep time");
    if (!is_done(a->work) || !is_done(b->work)) return kNotReady;
    *ms = std::chrono::duration<float, std::milli>(b->work->finished - a->work->finished).count();
    return kSuccess;
  });
}

Result host_function(Stream stream, HostFn function, void* data) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    if (!function) return m.refuse(kInvalidValue, "a host function that is null");
    return m.submit(s, HostCall{function, data}, lock);
  });
}

Result capture_begin(Stream stream, int mode) {
  return call_on_stream(stream,
                        [&](Machine&, StreamObject& s, Lock&) { return sim::capture_begin(s, mode); });
}

Result capture_end(Stream stream, Graph* graph) {
  return call_on_stream(stream, [&](Machine&, StreamObject& s, Lock&) { return sim::capture_end(s, graph); });
}

Result capture_status(Stream stream, int* status) {
  return call_on_stream(stream, [&](Machine&, StreamObject& s, Lock&) {
    *status = !s.capture           ? kCaptureStatusNone
              : s.capture->invalid ? kCaptureStatusInvalidated
                                   : kCaptureStatusActive;
    return kSuccess;
  });
}

Result graph_instantiate(GraphExec* exec, Graph graph, unsigned long long) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    const GraphObject* g = find(c.graphs, graph);
    if (!g) return m.refuse(kInvalidHandle, "no such graph");
    auto e = std::make_unique<GraphExecObject>();
    e->context = &c;
    e->plan = plan_of(g->nodes);
    *exec = e.get();
    c.execs[e.get()] = std::move(e);
    return kSuccess;
  });
}

Result graph_launch(GraphExec exec, Stream stream) {
  return call_on_stream(stream, [&](Machine& m, StreamObject& s, Lock& lock) {
    GraphExecObject* e = find(s.context->execs, exec);
    if (!e) return m.refuse(kInvalidHandle, "no such graph to launch");
    const bool captured = s.capture != nullptr;
    const Result r = m.submit(s, Replay{e->plan}, lock, e->last);
    if (r == kSuccess && !captured) e->last = s.last;
    return r;
  });
}

Result graph_exec_destroy(GraphExec exec) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    if (c.execs.erase(exec) == 0) return m.refuse(kInvalidHandle, "no such graph to launch");
    return kSuccess;
  });
}

Result graph_destroy(Graph graph) {
  return call_in_context([&](Machine& m, ContextObject& c, Lock&) {
    if (c.graphs.erase(graph) == 0) return m.refuse(kInvalidHandle, "no such graph");
    return kSuccess;
  });
}

}  // namespace api

}  // namespace kiln::cuda::sim
