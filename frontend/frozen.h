// SPDX-License-Identifier: Apache-2.0
// CompileOptions::frozen: the first call's trace, replayed on the arguments of a later call without the
// callable.
#pragma once

#include <any>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/fields.h"

namespace kiln::detail {

/// What a call was given: its tensors in order, and its host values as bytes.
struct FrozenArgs {
  std::vector<Tensor> tensors;
  std::string host_bytes;
  bool hidden = false;  ///< an argument cannot be looked into

  void tensor(const Tensor& t) { tensors.push_back(t); }
  void host(const void* data, size_t bytes) { host_bytes.append(static_cast<const char*>(data), bytes); }
  void opaque() { hidden = true; }
};

/// The tensors of a result, and whether all of it could be looked into.
using FrozenResult = FrozenArgs;

struct Trie;
/// Whether later calls replay: the first one has been frozen.
bool is_frozen(Trie& trie);
bool wants_frozen(Trie* trie);
/// Result of the first call without its tensors, to rebuild results from. The first one set stays.
void set_frozen_shape(Trie& trie, std::any shape);
std::any frozen_shape(Trie& trie);
[[noreturn]] void frozen_type_mismatch(Trie& trie);
/// Throws: unsupported, inside a frozen callable; `what`, and `of` behind it, is something that no replay can
/// repeat.
void forbid_frozen(std::string_view what, std::string_view of = {});
/// Replays on `args`; the result's tensors in order.
/// Throws: invalid, when an argument's metadata or a host value differs from the first call's.
std::vector<Tensor> run_frozen(Trie& trie, const FrozenArgs& args);

}  // namespace kiln::detail
