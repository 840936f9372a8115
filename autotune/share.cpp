// SPDX-License-Identifier: Apache-2.0
#include "autotune/share.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "ir/base/error.h"
#include "ir/base/hash.h"
#include "ir/base/log.h"

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kDefault = "default";
constexpr const char* kFound = "found ";

std::string joined(const std::vector<std::string>& words) {
  std::string s = "-";  // no value is empty: wait() could not see it
  for (const std::string& w : words) s += " " + w;
  return s;
}
std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

class Sharing {
 public:
  Sharing(const ShareOptions& o, const std::vector<SharedKernel>& kernels)
      : o_(o), kernels_(kernels), store_(*o.store), decided_(kernels.size()) {
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(o.gather + o.wait);
  }

  std::vector<SharedChoice> run(const MeasureOwn& measure) {
    announce();
    gather();
    std::vector<size_t> own, others;
    for (size_t i = 0; i < kernels_.size(); ++i) (owner(i) == o_.rank ? own : others).push_back(i);
    std::exception_ptr failure;
    try {
      settle_own(own, measure);
    } catch (...) {
      failure = std::current_exception();
    }
    // Whatever has happened here, the other ranks need not wait for it.
    for (const size_t i : own) decide(i, "");
    for (const size_t i : others) await(i);
    if (failure) std::rethrow_exception(failure);
    std::vector<SharedChoice> out;
    for (size_t i = 0; i < kernels_.size(); ++i) out.push_back({*decided_[i], owner(i) == o_.rank});
    return out;
  }

 private:
  std::string round_key(const std::string& name) const {
    return fmt::format("{}/tune/{}/{}", o_.prefix, o_.round, name);
  }
  std::string announce_key(int rank) const { return round_key(fmt::format("kernels/{}", rank)); }
  std::string result_key(size_t i) const {
    return fmt::format("{}/tune/result/{}", o_.prefix, kernels_[i].id);
  }

  void announce() {
    std::vector<std::string> ids;
    for (const SharedKernel& k : kernels_) ids.push_back(k.id);
    store_.set(announce_key(o_.rank), joined(ids));
  }

  /// store_.wait, or what is there now once a rank is lost: then waiting throws, and all that is missing gets
  /// its default.
  std::optional<std::string> wait(const std::string& key, Clock::time_point end) {
    const Seconds left = end - Clock::now();
    if (!lost_ && left.count() > 0) {
      try {
        return store_.wait(key, left);
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::comm) throw;
        log(LogLevel::warn, "tuning: goes on without other ranks: {}", e.what());
        lost_ = true;
      }
    }
    return store_.get(key);
  }

  /// Fixes who takes part, and learns what they announced.
  void gather() {
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(o_.gather);
    std::vector<std::string> present;
    for (const int r : o_.ranks)
      if (wait(announce_key(r), end)) present.push_back(std::to_string(r));
    const std::set<std::string> members = words(store_.set_once(round_key("members"), joined(present)));
    for (int r = 0; r <= o_.ranks.back(); ++r) {
      if (!members.count(std::to_string(r))) continue;
      const auto text = store_.get(announce_key(r));
      for (const std::string& id : words(text.value_or(""))) announcers_[id].push_back(r);
    }
  }

  /// Of the ranks that announced the kernel, in their order; this one, where it came too late.
  int owner(size_t i) const {
    const auto at = announcers_.find(kernels_[i].id);
    if (at == announcers_.end()) return o_.rank;
    return at->second[hash128(kernels_[i].id).lo % at->second.size()];
  }

  void settle_own(const std::vector<size_t>& own, const MeasureOwn& measure) {
    std::vector<size_t> unknown;
    for (const size_t i : own) {
      if (!kernels_[i].known.empty()) decide(i, kernels_[i].known);
      else if (const auto earlier = store_.get(result_key(i))) decided_[i] = text_of(*earlier);
      else unknown.push_back(i);
    }
    if (unknown.empty()) return;
    measure(unknown, [this](size_t i, const std::string& text) { decide(i, text); });
  }

  static std::string text_of(const std::string& result) {
    return result == kDefault ? "" : result.substr(std::string_view(kFound).size());
  }
  /// Proposes; what was written first counts.
  void decide(size_t i, const std::string& text) {
    if (decided_[i]) return;
    decided_[i] = text_of(store_.set_once(result_key(i), text.empty() ? kDefault : kFound + text));
  }
  void await(size_t i) {
    if (const auto result = wait(result_key(i), end_)) decided_[i] = text_of(*result);
    else decide(i, "");
  }

  const ShareOptions& o_;
  const std::vector<SharedKernel>& kernels_;
  Store& store_;
  Clock::time_point end_;
  bool lost_ = false;
  std::map<std::string, std::vector<int>> announcers_;
  std::vector<std::optional<std::string>> decided_;
};

}  // namespace

std::vector<SharedChoice> share_choices(const ShareOptions& options, const std::vector<SharedKernel>& kernels,
                                        const MeasureOwn& measure) {
  KILN_CHECK(options.store && std::count(options.ranks.begin(), options.ranks.end(), options.rank) == 1,
             invalid, "tuning: rank {} shares with ranks {}: it must be one of them", options.rank,
             fmt::join(options.ranks, ","));
  return Sharing(options, kernels).run(measure);
}

}  // namespace kiln
