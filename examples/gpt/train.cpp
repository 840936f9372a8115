// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/train.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "examples/gpt/bigram.h"
#include "examples/gpt/progress.h"
#include "examples/gpt/ranks.h"
#include "examples/gpt/sample.h"
#include "examples/gpt/session.h"
#include "examples/gpt/stop.h"
#include "examples/gpt/summary.h"

namespace gpt {

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kKeptLosses = 20;
constexpr int64_t kShortValidation = 20;  // batches, while training
const double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

const char* mode_name(const Options& o) { return o.eager ? "eager" : "compiled"; }

/// The same first steps without compiling, from the same start.
void compare_eagerly(const Options& options, const Corpus& corpus, const Ranks& alone, Summary& summary) {
  const int64_t n = std::min(options.eager_steps, options.steps);
  Session twin(options, corpus, alone);
  std::vector<double> times;
  for (int64_t i = 0; i < n && stop_signal() == 0; ++i) {
    const auto [x, y] = twin.next_batch();
    twin.begin_step();
    const auto begin = Clock::now();
    const double loss = twin.step(x, y).item();
    times.push_back(seconds_since(begin));
    twin.end_step();
    if (summary.eager_losses.size() < kKeptLosses) summary.eager_losses.push_back(loss);
  }
  if (!times.empty()) summary.eager_step_ms = 1e3 * median(times);
}

void add_stats(const kiln::CallableStats& stats, Summary& summary) {
  summary.builds = static_cast<int64_t>(stats.builds.size());
  summary.warm = !stats.builds.empty();
  for (const kiln::Build& b : stats.builds) {
    summary.kernels += b.kernels;
    summary.arena_mb = std::max(summary.arena_mb, static_cast<double>(b.arena_bytes) / 1048576);
    summary.warm = summary.warm && b.from_cache;
  }
}

/// The loop. `step` and `loss` are callables of (x, y): a training step, and a loss without gradients. True
/// if it was stopped by a signal.
template <typename Step, typename Loss>
bool run_steps(Session& session, const Options& o, const Ranks& ranks, Step&& step, Loss&& loss,
               Summary& summary) {
  const int64_t first = session.steps_done();
  Progress progress(Progress::kind_for(o.progress), first, o.steps, o.batch * o.seq);
  std::vector<double> times;
  double first_time = 0;
  bool stop = stop_signal() != 0 && ranks.size() == 1;
  while (session.steps_done() < o.steps && !stop) {
    const auto [x, y] = session.next_batch();
    session.begin_step();
    const auto begin = Clock::now();
    const Ranks::Step after = ranks.after_step(step(x, y).template item<double>(), stop_signal() != 0);
    const double value = after.loss;
    stop = after.stop;
    const double time = seconds_since(begin);
    session.end_step();
    const int64_t done = session.steps_done();
    KILN_CHECK(std::isfinite(value), invalid, "step {}: the loss is {} (try a lower --lr)", done, value);
    (done == first + 1 ? first_time : times.emplace_back()) = time;
    if (summary.losses.size() < kKeptLosses) summary.losses.push_back(value);
    progress.update(done, value);
    if (o.eval_every > 0 && done % o.eval_every == 0 && done < o.steps)
      progress.say(fmt::format("step {}: validation loss {:.4f} ({} batches)", done,
                               session.validate(loss, kShortValidation), kShortValidation));
    if (o.save_every > 0 && done % o.save_every == 0) session.save(o.checkpoint);
    if (o.eval_every > 0 || o.save_every > 0) progress.pause();
  }
  progress.finish();
  summary.steps = session.steps_done() - first;
  summary.step_ms = 1e3 * median(times);
  summary.compile_s = o.eager ? 0 : std::max(0.0, first_time - summary.step_ms / 1e3);
  if (summary.step_ms > 0)
    summary.tokens_per_s = static_cast<double>(o.batch * o.seq) / (summary.step_ms / 1e3);
  return stop;
}

/// How near a build comes to what the CPU can do.
std::string limit_text(const kiln::Build& b, const Options& o, const Summary& s) {
  const double limit = 1e3 * kiln::limit_seconds(b, static_cast<int>(o.threads));
  return fmt::format("; this machine's limit for them {:.1f} ms, {:.0f} % of it reached", limit,
                     s.step_ms > 0 ? 100 * limit / s.step_ms : 0);
}

void print_summary(const Options& o, const Summary& s, const kiln::CallableStats& stats, bool on_cpu) {
  fmt::print("validation loss {:.4f} -> {:.4f} nat; bigram model {:.4f}; {:+.4f}\n", s.val_loss_first,
             s.val_loss_last, s.val_bigram, s.val_loss_last - s.val_bigram);
  fmt::print("{} steps, {:.1f} ms each ({}), {:.0f} tokens/s", s.steps, s.step_ms, mode_name(o),
             s.tokens_per_s);
  if (std::isfinite(s.eager_step_ms)) fmt::print("; eager {:.1f} ms", s.eager_step_ms);
  fmt::print("\n");
  if (o.eager) return;
  fmt::print("compile {:.2f} s{}; arena {:.1f} MB\n", s.compile_s, s.warm ? " (from the disk cache)" : "",
             s.arena_mb);
  for (const kiln::Build& b : stats.builds)
    fmt::print("  build: {} ({:.2f} s); {} ops fused into {} launches of {} kernels{}\n", b.reason, b.seconds,
               b.nodes, b.work.size(), b.kernels, on_cpu ? limit_text(b, o, s) : "");
}

/// Everything after the session is ready, with the callables of the chosen mode.
template <typename Step, typename Loss, typename Logits>
void run_session(Session& session, const Corpus& corpus, const Options& o, const Ranks& ranks, Step& step,
                 Loss& loss, Logits& logits, Summary& summary) {
  summary.val_loss_first = session.validate(loss, 0);
  if (ranks.lead()) fmt::print("validation loss before: {:.4f}\n", summary.val_loss_first);
  const bool stopped = run_steps(session, o, ranks, step, loss, summary);
  if (!o.checkpoint.empty()) session.save(o.checkpoint);
  if (stopped) {
    if (ranks.lead())
      fmt::print("stopped by signal {} after step {}{}\n", stop_signal(), session.steps_done(),
                 o.checkpoint.empty() ? "" : "; saved " + o.checkpoint);
    return;
  }
  summary.val_loss_last = session.validate(loss, 0);
  session.model().eval();
  const auto on_device = [&](const Tensor& ids) { return logits(ids.to(ranks.device())); };
  if (o.sample > 0) fmt::print("--- sample ---\n{}\n--- end ---\n", sample(on_device, corpus, o));
}

}  // namespace

int train(const Options& asked) {
  Ranks ranks(asked);
  const Options o = ranks.options(asked);
  const Corpus corpus = make_corpus(read_text(o.data), o.seq);
  Summary summary;
  summary.val_loss_last = summary.eager_step_ms = kNotMeasured;
  summary.val_bigram = bigram_loss(corpus.train, corpus.valid, corpus.vocab());
  if (ranks.lead())
    fmt::print("{} bytes to train on, {} to validate, alphabet of {}; bigram model: {:.4f} nat{}\n",
               corpus.train.size(), corpus.valid.size(), corpus.vocab(), summary.val_bigram,
               ranks.size() > 1 ? fmt::format("; {} ranks", ranks.size()) : "");
  if (!o.eager && o.resume.empty() && o.eager_steps > 0 && ranks.size() == 1)
    compare_eagerly(o, corpus, ranks, summary);

  Session session(o, corpus, ranks);
  if (!o.resume.empty()) session.resume(o.resume);
  const auto step = [&](const Tensor& x, const Tensor& y) { return session.step(x, y); };
  const auto loss = [&](const Tensor& x, const Tensor& y) {
    const kiln::NoGrad guard;
    return session.model()(x, y);
  };
  const auto logits = [&](const Tensor& ids) {
    const kiln::NoGrad guard;
    return session.model()(ids);
  };
  kiln::CallableStats stats;
  if (o.eager) {
    run_session(session, corpus, o, ranks, step, loss, logits, summary);
  } else {
    const int threads = static_cast<int>(o.threads);
    auto compiled_step = kiln::compile(step, {.name = "step", .threads = threads});
    auto compiled_loss = kiln::compile(loss, {.name = "loss", .threads = threads});
    auto compiled_logits = kiln::compile(logits, {.name = "logits", .threads = threads});
    run_session(session, corpus, o, ranks, compiled_step, compiled_loss, compiled_logits, summary);
    stats = compiled_step.stats();
    add_stats(stats, summary);
  }
  if (ranks.lead()) print_summary(o, summary, stats, !ranks.device().is_cuda());
  if (!o.json.empty()) write_json(o.json, summary);
  ranks.leave();
  return 0;
}

}  // namespace gpt
