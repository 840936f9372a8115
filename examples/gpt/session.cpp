// SPDX-License-Identifier: Apache-2.0
#include "examples/gpt/session.h"

#include <algorithm>

namespace gpt {

namespace {

// Weights follow the seed alone, whatever was drawn before.
const Options& seeded(const Options& options) {
  kiln::manual_seed(options.seed);
  return options;
}

/// The model where it is trained.
Gpt& moved(Gpt& model, kiln::Device device) {
  model.to(device);
  return model;
}

kiln::optim::AdamWOptions adamw(const Options& o) {
  return {.lr = o.lr, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = o.weight_decay};
}

/// Those whose names begin with `prefix`, without it.
kiln::NamedTensors with_prefix(const kiln::NamedTensors& all, std::string_view prefix) {
  kiln::NamedTensors out;
  for (const auto& [name, t] : all)
    if (name.starts_with(prefix)) out.emplace_back(name.substr(prefix.size()), t);
  return out;
}

}  // namespace

Session::Session(const Options& options, const Corpus& corpus, const Ranks& ranks)
    : options_(seeded(options)),
      corpus_(corpus),
      ranks_(ranks),
      model_(options, corpus.vocab()),
      optimizer_(moved(model_, ranks.device()).parameters(), adamw(options)),
      batches_(options.seed, 0) {
  if (!ranks.group()) return;
  parallel_.emplace(model_, ranks.group(), kiln::nn::DistributedDataParallelOptions{},
                    kiln::SourceLoc::current());
  draw_like_no_other_rank();
}

/// Dropout must differ from rank to rank.
void Session::draw_like_no_other_rank() {
  kiln::GeneratorState g = kiln::generator_state();
  g.seed += static_cast<uint64_t>(ranks_.rank());
  kiln::set_generator_state(g);
}

Tensor Session::on_device(const std::vector<int64_t>& tokens, const kiln::Sizes& shape) const {
  return Tensor::from_vector(tokens, shape).to(ranks_.device());
}

std::pair<Tensor, Tensor> Session::next_batch() {
  const auto n = static_cast<size_t>(options_.batch * options_.seq);
  std::vector<int64_t> x(n), y(n);
  batches_.next(corpus_.train, options_.seq, x, y);
  // All ranks draw the whole batch, so that it is the one that a process alone would train on.
  const int64_t rows = options_.batch / ranks_.size();
  const auto own = static_cast<ptrdiff_t>(rows * options_.seq), first = own * ranks_.rank();
  x = {x.begin() + first, x.begin() + first + own};
  y = {y.begin() + first, y.begin() + first + own};
  const kiln::Sizes shape{rows, options_.seq};
  return {on_device(x, shape), on_device(y, shape)};
}

// A validation part shorter than a batch is repeated from its start.
std::pair<Tensor, Tensor> Session::validation_batch(int64_t index) const {
  const auto n = static_cast<size_t>(options_.batch * options_.seq), seq = static_cast<size_t>(options_.seq);
  const size_t windows = (corpus_.valid.size() - 1) / seq;
  std::vector<int64_t> x(n), y(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t window = (static_cast<size_t>(index * options_.batch) + i / seq) % windows;
    x[i] = corpus_.valid[window * seq + i % seq];
    y[i] = corpus_.valid[window * seq + i % seq + 1];
  }
  const kiln::Sizes shape{options_.batch, options_.seq};
  return {on_device(x, shape), on_device(y, shape)};
}

void Session::begin_step() { optimizer_.lr = options_.lr_at(done_); }

Tensor Session::step(const Tensor& x, const Tensor& y) {
  optimizer_.zero_grad();
  const Tensor loss = parallel_ ? (*parallel_)(x, y) : model_(x, y);
  loss.backward();
  if (options_.clip > 0) kiln::optim::clip_grad_norm_(optimizer_.params(), options_.clip);
  optimizer_.step();
  return loss;
}

void Session::save(const std::string& path) const {
  kiln::NamedTensors named;
  for (const auto& [name, t] : model_.state_dict()) named.emplace_back("model." + name, t);
  for (const auto& [name, t] : optimizer_.state_dict()) named.emplace_back("optim." + name, t);
  const kiln::GeneratorState g = kiln::generator_state();
  const TrainState state{done_, batches_.seed(), batches_.drawn(), g.seed, g.offset, corpus_.digest};
  save_checkpoint(path, named, state, options_);
}

void Session::resume(const std::string& path) {
  const Checkpoint c = open_checkpoint(path, options_, corpus_.digest);
  const kiln::NamedTensors all = kiln::tensors_of(c.file);
  model_.load_state_dict(with_prefix(all, "model."));
  optimizer_.load_state_dict(with_prefix(all, "optim."));
  batches_ = Batches(c.state.batch_seed, c.state.batches_drawn);
  kiln::set_generator_state({c.state.generator_seed, c.state.generator_offset});
  draw_like_no_other_rank();
  done_ = c.state.step;
}

}  // namespace gpt
