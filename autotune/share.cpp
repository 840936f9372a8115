// SPDX-License-Identifier: Apache-2.0
#include "autotune/share.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "ir/base/error.h"
#include "ir/base/log.h"

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kDefault = "default";
constexpr const char* kFound = "found ";

class Sharing {
 public:
  Sharing(const ShareOptions& o, const std::vector<SharedKernel>& kernels)
      : o_(o),
        kernels_(kernels),
        store_(*o.store),
        end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(o.wait)),
        decided_(kernels.size()),
        own_(kernels.size(), false) {}

  std::vector<SharedChoice> run(const Measure& measure) {
    for (size_t i = 0; i < kernels_.size(); ++i) {
      if (kernels_[i].known.empty()) left_.push_back(i);
      else own_[i] = decide(i, kernels_[i].known);
    }
    std::exception_ptr failure;
    if (!left_.empty()) {
      try {
        measure([this](size_t most) { return take(most); },
                [this](size_t i, const std::string& text) { return decide(i, text); });
        take(left_.size(), true);  // what nobody has begun, nobody needs to begin
      } catch (...) {
        failure = std::current_exception();
      }
    }
    // Whatever has happened here, the other ranks need not wait for it.
    for (size_t i = 0; i < kernels_.size(); ++i)
      if (own_[i]) decide(i, "");
    if (failure) std::rethrow_exception(failure);
    std::vector<SharedChoice> out;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      if (!decided_[i]) await(i);
      out.push_back({*decided_[i], own_[i]});
    }
    return out;
  }

 private:
  std::string key(const char* what, size_t i) const {
    return fmt::format("{}/tune/{}/{}", o_.prefix, what, kernels_[i].id);
  }

  std::vector<size_t> take(size_t most, bool all = false) {
    if (!all) most = kernels_at_once(left_.size(), o_.size, most);
    std::vector<size_t> taken;
    size_t at = 0;
    for (; at < left_.size() && taken.size() < most; ++at) {
      const size_t i = left_[at];
      if (const auto earlier = store_.get(key("result", i))) decided_[i] = text_of(*earlier);
      else if (store_.set_once(key("taken", i), std::to_string(o_.rank)) == std::to_string(o_.rank))
        taken.push_back(i), own_[i] = true;
    }
    left_.erase(left_.begin(), left_.begin() + static_cast<ptrdiff_t>(at));
    return taken;
  }

  /// store_.wait, or what is there now once a rank is lost: then waiting throws, and all that is missing gets
  /// its default.
  std::optional<std::string> wait(const std::string& key) {
    const Seconds left = end_ - Clock::now();
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
  void await(size_t i) {
    if (const auto result = wait(key("result", i))) decided_[i] = text_of(*result);
    else decide(i, "");
  }

  static std::string text_of(const std::string& result) {
    return result == kDefault ? "" : result.substr(std::string_view(kFound).size());
  }
  /// Proposes; what was written first counts. Whether that is this.
  bool decide(size_t i, const std::string& text) {
    if (!decided_[i])
      decided_[i] = text_of(store_.set_once(key("result", i), text.empty() ? kDefault : kFound + text));
    return *decided_[i] == text;
  }

  const ShareOptions& o_;
  const std::vector<SharedKernel>& kernels_;
  Store& store_;
  const Clock::time_point end_;
  bool lost_ = false;
  std::vector<size_t> left_;  // that this rank has not looked at
  std::vector<std::optional<std::string>> decided_;
  std::vector<bool> own_;
};

}  // namespace

size_t kernels_at_once(size_t left, int size, size_t most) {
  const size_t shares = 2 * static_cast<size_t>(size);
  return size == 1 ? most : std::clamp<size_t>((left + shares - 1) / shares, 1, most);
}

std::vector<SharedChoice> share_choices(const ShareOptions& options, const std::vector<SharedKernel>& kernels,
                                        const Measure& measure) {
  KILN_CHECK(options.store && options.rank >= 0 && options.rank < options.size, invalid,
             "tuning: rank {} shares among {} ranks: it must be one of them", options.rank, options.size);
  return Sharing(options, kernels).run(measure);
}

}  // namespace kiln
