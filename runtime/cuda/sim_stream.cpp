// SPDX-License-Identifier: Apache-2.0
// Streams: what is asked for waits until somebody waits for it, and is checked for order when it is asked
// for.
#include <fmt/format.h>

#include "runtime/cuda/sim_capture.h"
#include "runtime/cuda/sim_state.h"

namespace kiln::cuda::sim {

namespace {

constexpr size_t kQueueLimit = 1024;  // as a driver has one: who asks for more waits for the first

void trim(StreamObject& s) {
  while (!s.queue.empty() && is_done(s.queue.front())) s.queue.pop_front();
}

}  // namespace

StreamObject* Machine::stream(ContextObject& context, Stream handle) {
  if (!handle) return &context.legacy;
  const auto at = context.streams.find(handle);
  return at == context.streams.end() ? nullptr : at->second.get();
}

std::string Machine::check_held(const std::vector<Use>& uses, const Action& action) {
  for (const Use& u : uses) {
    const ContextObject* c = u.write ? of_address(u.begin) : nullptr;
    if (!c || c->held.empty() || std::holds_alternative<End>(action)) continue;
    auto at = c->held.lower_bound(u.begin + u.bytes);
    if (at == c->held.begin()) continue;
    --at;
    if (at->first + at->second > u.begin)
      return fmt::format(
          "overwritten output: {} writes {} ({} bytes at {:#x}), of which {} bytes at {:#x} are "
          "an output that is still held",
          name_of(action), u.name, u.bytes, u.begin, at->second, at->first);
  }
  return "";
}

std::string Machine::check_order(const std::vector<Use>& uses, const StreamObject& stream, const Work& work) {
  if (uses.empty()) return "";
  const auto name = std::make_shared<const std::string>(
      &stream == &stream.context->legacy
          ? name_of(work.action) + " on the legacy stream"
          : fmt::format("{} on stream {}", name_of(work.action), stream.number));
  const User user = {stream.number, stream.ticks, name};
  std::string found;
  for (const Use& u : uses) {
    const std::string race = history.note(u, user, [&](const User& before) {
      const auto n = static_cast<size_t>(before.stream);
      return n < work.clock.size() && work.clock[n] >= before.tick;
    });
    if (found.empty() && !race.empty()) found = "stream race: " + race + ", with no event between them";
  }
  return found;
}

void Machine::enqueue(StreamObject& stream, Action&& action, const WorkPtr& after) {
  ContextObject& context = *stream.context;
  auto work = std::make_shared<Work>();
  work->action = std::move(action);
  work->context = &context;
  work->clock = host;
  const auto follow = [&](const WorkPtr& w) {
    if (!w) return;
    join(work->clock, w->clock);
    if (!is_done(w)) work->after.push_back(w);
  };
  follow(stream.last);
  follow(after);
  if (&stream == &context.legacy) {
    for (const auto& [key, s] : context.streams)
      if (s->blocking) follow(s->last);
  } else if (stream.blocking) {
    follow(context.legacy.last);
  }
  if (work->clock.size() <= static_cast<size_t>(stream.number)) work->clock.resize(stream.number + 1);
  work->clock[stream.number] = ++stream.ticks;
  const std::vector<Use> uses = uses_of(work->action);
  std::string wrong = check_held(uses, work->action);
  std::string race = check_order(uses, stream, *work);
  if (wrong.empty()) wrong = std::move(race);
  if (!wrong.empty()) work->fault = {kLaunchFailed, std::move(wrong)};
  stream.last = work;
  trim(stream);
  stream.queue.push_back(std::move(work));
}

Result Machine::submit(StreamObject& stream, Action action, Lock& lock, WorkPtr after) {
  if (stream.capture) return capture(stream, std::move(action));
  if (const Result r = check_legacy(stream)) return r;
  enqueue(stream, std::move(action), after);
  if (stream.queue.size() > kQueueLimit) finish(WorkPtr(stream.queue.front()), lock);
  return kSuccess;
}

void Machine::run(const WorkPtr& work, Lock& lock) {
  ContextObject& context = *work->context;
  work->state = Work::State::running;
  Fault f;
  if (!context.error) f = work->fault ? work->fault : perform(work->action, context, lock);
  if (f && !context.error) {
    fault = f.text;
    context.error = std::move(f);
  }
  work->action = Mark{};
  work->state = Work::State::done;
  work->finished = std::chrono::steady_clock::now();
  changed.notify_all();
}

// One of those that `work` waits for, any of them but rather one that nobody runs; null if it waits for none.
WorkPtr Machine::first_before(const WorkPtr& work) {
  auto& after = work->after;
  std::erase_if(after, is_done);
  if (after.empty()) return nullptr;
  const auto n = static_cast<uint32_t>(after.size()), start = random.below(n);
  for (uint32_t i = 0; i < n; ++i)
    if (after[(start + i) % n]->state == Work::State::queued) return after[(start + i) % n];
  return after[start];
}

void Machine::finish(const WorkPtr& work, Lock& lock) {
  std::vector<WorkPtr> path = {work};
  while (!path.empty()) {
    const WorkPtr w = path.back();
    if (is_done(w)) {
      path.pop_back();
    } else if (WorkPtr before = first_before(w)) {
      path.push_back(std::move(before));
    } else if (w->state == Work::State::queued) {
      run(w, lock);
    } else {
      changed.wait(lock);
    }
  }
}

void Machine::advance(const WorkPtr& work, Lock& lock) {
  WorkPtr w = work;
  while (w && !is_done(w))
    if (WorkPtr before = first_before(w)) {
      w = std::move(before);
    } else {
      if (w->state == Work::State::queued) run(w, lock);
      return;
    }
}

void Machine::finish_all(ContextObject& context, Lock& lock) {
  std::vector<WorkPtr> last = {context.legacy.last};
  for (const auto& [key, s] : context.streams) last.push_back(s->last);
  random.shuffle(last);
  for (const WorkPtr& w : last) synchronize(context, w, lock);
}

Result Machine::synchronize(ContextObject& context, const WorkPtr& work, Lock& lock) {
  if (work) {
    finish(work, lock);
    join(host, work->clock);
  }
  // Memory that a pool keeps for later goes back when somebody waits.
  PoolObject& pool = context.pool;
  pool.reserved = std::max(pool.used, std::min(pool.reserved, pool.threshold));
  forget_the_past();
  return context.error.code;
}

// What the host has waited for collides with nothing to come.
void Machine::forget_the_past() {
  const auto waited_for = [&](const StreamObject& s) {
    const auto n = static_cast<size_t>(s.number);
    return s.ticks == 0 || (n < host.size() && host[n] >= s.ticks);
  };
  for (const auto& c : contexts) {
    if (!c) continue;
    if (!waited_for(c->legacy)) return;
    for (const auto& [key, s] : c->streams)
      if (!waited_for(*s)) return;
  }
  history.clear();
}

}  // namespace kiln::cuda::sim
