// SPDX-License-Identifier: Apache-2.0
#include "frontend/state.h"

#include <atomic>
#include <mutex>

#include "frontend/context.h"
#include "frontend/cuda.h"
#include "frontend/cursor.h"
#include "frontend/dispatch.h"
#include "frontend/frozen.h"

namespace kiln {

namespace detail {

State& state() {
  thread_local State s = [] {
    install_host_functions();
    return State();
  }();
  return s;
}

std::string State::scope_path() const {
  size_t from = scopes.size();  // a module's name is its whole path: what encloses it adds nothing
  while (from > 0 && !scopes[from - 1].module) --from;
  std::string path;
  for (size_t i = from > 0 ? from - 1 : 0; i < scopes.size(); ++i)
    path += (path.empty() ? "" : "/") + std::string(scopes[i].name);
  return path;
}

std::string State::module_path() const {
  for (size_t i = scopes.size(); i-- > 0;)
    if (scopes[i].module && *scopes[i].name) return scopes[i].name;
  return "";
}

std::string State::place() const {
  return scopes.empty() ? std::string("in-place")
                        : fmt::format("{} ({})", scopes.back().name, scopes.back().loc.str());
}

SourceLoc State::user_loc() const { return scopes.empty() ? SourceLoc() : scopes.back().loc; }

Scope::Scope(const char* name, SourceLoc loc, bool module) {
  std::vector<ScopeEntry>& scopes = state().scopes;
  const bool inner = !module && !scopes.empty() && !scopes.back().module;
  scopes.push_back({name, inner ? scopes.back().loc : loc, module});
}
Scope::~Scope() { state().scopes.pop_back(); }

Loc caller_loc() { return state().user_loc(); }

bool tracing() { return state().cursor != nullptr; }

namespace {
struct Generator {
  std::mutex mutex;
  GeneratorState value;
};
Generator& generator() {
  static Generator g;
  return g;
}
}  // namespace

namespace {
std::atomic<bool>& tf32() {
  static std::atomic<bool> allowed{false};
  return allowed;
}
}  // namespace

bool allows_tf32() { return tf32().load(std::memory_order_relaxed); }

GeneratorState next_random() {
  forbid_frozen("random numbers");
  GeneratorState s;
  {
    std::lock_guard lock(generator().mutex);
    s = generator().value;
    ++generator().value.offset;
  }
  if (Cursor* c = state().cursor) c->note_draw(s);
  return s;
}

void take_back_random(const GeneratorState& first, uint64_t count) {
  std::lock_guard lock(generator().mutex);
  GeneratorState& now = generator().value;
  if (now.seed == first.seed && now.offset == first.offset + count) now = first;
}

}  // namespace detail

namespace {
/// The index of a GPU, or -1.
std::atomic<int>& default_gpu() {
  static std::atomic<int> gpu{-1};
  return gpu;
}
}  // namespace

void set_default_device(Device device) { default_gpu() = device.is_cuda() ? device.index : -1; }
Device get_default_device() {
  const int gpu = default_gpu();
  return gpu < 0 ? Device::cpu() : Device::cuda(gpu);
}

void set_float32_matmul_precision(std::string_view precision, SourceLoc loc) {
  KILN_CHECK(precision == "highest" || precision == "high" || precision == "medium", invalid,
             "set_float32_matmul_precision ({}): got '{}', expected 'highest', 'high' or 'medium'", loc.str(),
             precision);
  detail::tf32() = precision != "highest";
}
std::string_view get_float32_matmul_precision() { return detail::allows_tf32() ? "high" : "highest"; }

void manual_seed(uint64_t seed) { set_generator_state({seed, 0}); }

GeneratorState generator_state() {
  std::lock_guard lock(detail::generator().mutex);
  return detail::generator().value;
}

void set_generator_state(GeneratorState s) {
  std::lock_guard lock(detail::generator().mutex);
  detail::generator().value = s;
}

NoGrad::NoGrad() : previous_(detail::state().grad_enabled) { detail::state().grad_enabled = false; }
NoGrad::~NoGrad() { detail::state().grad_enabled = previous_; }
bool grad_enabled() { return detail::state().grad_enabled; }

}  // namespace kiln
