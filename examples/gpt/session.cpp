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

kiln::optim::AdamWOptions adamw(const Options& o) {
  return {.lr = o.lr, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = o.weight_decay};
}

const void* bytes_of(const Tensor& t) {
  return kiln::dispatch(t.dtype(), [&]<typename T>(T) -> const void* { return t.data_ptr<T>(); });
}

Tensor tensor_of(const kiln::SafetensorsFile::Entry& e) {
  return kiln::dispatch(e.dtype, [&]<typename T>(T) {
    const auto* p = reinterpret_cast<const T*>(e.data);
    return Tensor::from_span(std::span<const T>(p, e.bytes / sizeof(T)), e.shape);
  });
}

/// The arrays of the file whose names begin with `prefix`, without it.
kiln::nn::NamedTensors with_prefix(const kiln::SafetensorsFile& file, std::string_view prefix) {
  kiln::nn::NamedTensors out;
  for (const auto& e : file.entries())
    if (e.name.starts_with(prefix)) out.emplace_back(e.name.substr(prefix.size()), tensor_of(e));
  return out;
}

}  // namespace

Session::Session(const Options& options, const Corpus& corpus)
    : options_(seeded(options)),
      corpus_(corpus),
      model_(options, corpus.vocab()),
      optimizer_(model_.parameters(), adamw(options)),
      batches_(options.seed, 0) {}

std::pair<Tensor, Tensor> Session::next_batch() {
  const auto n = static_cast<size_t>(options_.batch * options_.seq);
  std::vector<int64_t> x(n), y(n);
  batches_.next(corpus_.train, options_.seq, x, y);
  const kiln::Sizes shape{options_.batch, options_.seq};
  return {Tensor::from_vector(x, shape), Tensor::from_vector(y, shape)};
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
  return {Tensor::from_vector(x, shape), Tensor::from_vector(y, shape)};
}

void Session::begin_step() { optimizer_.lr = options_.lr_at(done_); }

Tensor Session::step(const Tensor& x, const Tensor& y) {
  optimizer_.zero_grad();
  const Tensor loss = model_(x, y);
  loss.backward();
  if (options_.clip > 0) kiln::optim::clip_grad_norm_(optimizer_.params(), options_.clip);
  optimizer_.step();
  return loss;
}

void Session::save(const std::string& path) const {
  std::vector<std::pair<std::string, Tensor>> named;
  for (const auto& [name, t] : model_.state_dict()) named.emplace_back("model." + name, t.contiguous());
  for (const auto& [name, t] : optimizer_.state_dict()) named.emplace_back("optim." + name, t.contiguous());
  std::vector<kiln::SafetensorsItem> items;
  for (const auto& [name, t] : named) items.push_back({name, t.dtype(), t.sizes(), bytes_of(t)});
  const kiln::GeneratorState g = kiln::generator_state();
  const TrainState state{done_, batches_.seed(), batches_.drawn(), g.seed, g.offset, corpus_.digest};
  save_checkpoint(path, items, state, options_);
}

void Session::resume(const std::string& path) {
  const Checkpoint c = open_checkpoint(path, options_, corpus_.digest);
  model_.load_state_dict(with_prefix(c.file, "model."));
  optimizer_.load_state_dict(with_prefix(c.file, "optim."));
  batches_ = Batches(c.state.batch_seed, c.state.batches_drawn);
  kiln::set_generator_state({c.state.generator_seed, c.state.generator_offset});
  done_ = c.state.step;
}

}  // namespace gpt
