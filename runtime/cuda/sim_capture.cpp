// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/sim_capture.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln::cuda::sim {

namespace {

Result invalidate(const std::shared_ptr<CaptureState>& c, Result code, std::string text) {
  c->invalid = true;
  return machine().refuse(code, "capture: " + std::move(text));
}

void end(const std::shared_ptr<CaptureState>& c) {
  c->ended = true;
  for (StreamObject* s : c->streams) {
    s->capture = nullptr;
    s->tail.clear();
  }
  std::erase(machine().captures, c);
}

void add_all(std::vector<int>& tail, const std::vector<int>& nodes) {
  for (const int n : nodes)
    if (std::find(tail.begin(), tail.end(), n) == tail.end()) tail.push_back(n);
}

// For each node those that come before it, as bits, and itself.
std::vector<std::vector<bool>> closure(const std::vector<Node>& nodes) {
  std::vector<std::vector<bool>> before(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    before[i].resize(i + 1);
    before[i][i] = true;
    for (const int a : nodes[i].after)
      for (size_t k = 0; k < before[a].size(); ++k)
        if (before[a][k]) before[i][k] = true;
  }
  return before;
}

// A stream whose work nobody of the origin waits for, or null.
const StreamObject* unjoined(const CaptureState& c) {
  std::vector<bool> joined(c.nodes.size());
  std::vector<int> open = c.origin->tail;
  while (!open.empty()) {
    const int n = open.back();
    open.pop_back();
    if (joined[n]) continue;
    joined[n] = true;
    open.insert(open.end(), c.nodes[n].after.begin(), c.nodes[n].after.end());
  }
  for (const StreamObject* s : c.streams)
    if (!std::all_of(s->tail.begin(), s->tail.end(), [&](int n) { return joined[n]; })) return s;
  return nullptr;
}

}  // namespace

Result capture(StreamObject& stream, Action action) {
  const auto c = stream.capture;
  if (c->invalid)
    return machine().refuse(kCaptureInvalidated, "capture: an earlier call has made this capture invalid");
  if (std::holds_alternative<Begin>(action) || std::holds_alternative<End>(action) ||
      std::holds_alternative<Replay>(action))
    return forbid_in_capture(c, name_of(action).c_str());
  if (std::holds_alternative<Mark>(action)) return kSuccess;
  c->nodes.push_back({std::move(action), stream.tail});
  stream.tail = {static_cast<int>(c->nodes.size()) - 1};
  return kSuccess;
}

Result forbid_in_capture(const std::shared_ptr<CaptureState>& c, const char* what) {
  if (c->invalid)
    return machine().refuse(kCaptureInvalidated, "capture: an earlier call has made this capture invalid");
  return invalidate(c, kCaptureUnsupported,
                    fmt::format("{} is not allowed while the stream is captured", what));
}

Result check_legacy(const StreamObject& stream) {
  const ContextObject& context = *stream.context;
  if (&stream != &context.legacy) return kSuccess;
  for (const auto& [key, s] : context.streams)
    if (s->blocking && s->capture)
      return invalidate(
          s->capture, kCaptureImplicit,
          fmt::format("the legacy stream is used, and stream {}, which it waits for, is captured",
                      s->number));
  return kSuccess;
}

Result check_whole(const ContextObject& context, const char* what) {
  for (const auto& c : machine().captures)
    if (c->origin->context == &context) return forbid_in_capture(c, what);
  return check_unsafe(what);
}

Result check_unsafe(const char* what) {
  for (const auto& c : machine().captures) {
    const bool mine = c->thread == std::this_thread::get_id();
    if (c->mode == kCaptureRelaxed || (c->mode == kCaptureThreadLocal && !mine)) continue;
    return forbid_in_capture(c, what);
  }
  return kSuccess;
}

Result capture_begin(StreamObject& stream, int mode) {
  Machine& m = machine();
  if (mode < kCaptureGlobal || mode > kCaptureRelaxed)
    return m.refuse(kInvalidValue, fmt::format("capture: no mode {}", mode));
  if (&stream == &stream.context->legacy)
    return m.refuse(kCaptureUnsupported, "capture: the legacy stream cannot be captured");
  if (stream.capture)
    return m.refuse(kIllegalState, fmt::format("capture: stream {} is captured already", stream.number));
  auto c = std::make_shared<CaptureState>();
  c->origin = &stream;
  c->mode = mode;
  c->thread = std::this_thread::get_id();
  c->streams = {&stream};
  stream.capture = c;
  stream.tail.clear();
  m.captures.push_back(std::move(c));
  return kSuccess;
}

Result capture_end(StreamObject& stream, Graph* graph) {
  Machine& m = machine();
  *graph = nullptr;
  const auto c = stream.capture;
  if (!c) return m.refuse(kIllegalState, fmt::format("capture: stream {} is not captured", stream.number));
  if (c->mode != kCaptureRelaxed && c->thread != std::this_thread::get_id())
    return m.refuse(kCaptureWrongThread, "capture: ends on another thread than it began on");
  if (c->origin != &stream)
    return invalidate(
        c, kCaptureUnmatched,
        fmt::format("ends on stream {}, but began on stream {}", stream.number, c->origin->number));
  const StreamObject* loose = c->invalid ? nullptr : unjoined(*c);
  const int number = loose ? loose->number : 0;
  end(c);
  if (c->invalid) return m.refuse(kCaptureInvalidated, "capture: an earlier call has made it invalid");
  if (loose)
    return m.refuse(kCaptureUnjoined,
                    fmt::format("capture: the work of stream {} is not waited for by stream {}, "
                                "where the capture began",
                                number, stream.number));
  auto g = std::make_unique<GraphObject>();
  g->context = stream.context;
  g->nodes = std::move(c->nodes);
  *graph = g.get();
  stream.context->graphs[g.get()] = std::move(g);
  return kSuccess;
}

Result capture_wait(StreamObject& stream, EventObject& event) {
  Machine& m = machine();
  if (!event.capture) {
    if (!event.work) return kSuccess;
    return invalidate(
        stream.capture, kCaptureIsolation,
        fmt::format("stream {} waits for an event that was recorded outside of the capture", stream.number));
  }
  if (event.capture->ended)
    return m.refuse(kCapturedEvent, "capture: an event was last recorded in a capture that has ended");
  if (&stream == &stream.context->legacy)
    return invalidate(event.capture, kCaptureImplicit, "the legacy stream waits for an event of a capture");
  if (stream.capture && stream.capture != event.capture) {
    stream.capture->invalid = true;
    return invalidate(event.capture, kCaptureMerge, "a stream of one waits for an event of another");
  }
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.tail.clear();
    event.capture->streams.push_back(&stream);
  }
  add_all(stream.tail, event.nodes);
  return kSuccess;
}

void capture_record(StreamObject& stream, EventObject& event) {
  event.work = nullptr;
  event.capture = stream.capture;
  event.nodes = stream.tail;
}

void capture_leave(StreamObject& stream) {
  const auto c = stream.capture;
  if (!c) return;
  invalidate(c, kCaptureUnsupported, fmt::format("stream {} is destroyed", stream.number));
  std::erase(c->streams, &stream);
  if (c->origin == &stream) end(c);
}

std::shared_ptr<const GraphPlan> plan_of(const std::vector<Node>& nodes) {
  auto plan = std::make_shared<GraphPlan>();
  plan->nodes = nodes;
  const auto before = closure(nodes);
  History history;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto name =
        std::make_shared<const std::string>(fmt::format("{} (node {})", name_of(nodes[i].action), i));
    for (Use& u : uses_of(nodes[i].action)) {
      const std::string race =
          history.note(u, {-1, i, name}, [&](const User& user) { return before[i][user.tick]; });
      if (plan->race.empty() && !race.empty())
        plan->race = "graph race: " + race + ", with no dependency between them";
      u.name += " of " + *name;
      plan->uses.push_back(std::move(u));
    }
  }
  return plan;
}

}  // namespace kiln::cuda::sim
