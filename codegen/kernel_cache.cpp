// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel_cache.h"

#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "ir/base/error.h"
#include "ir/base/log.h"

namespace kiln {

namespace {

constexpr const char* kKind = "object";

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::string key_of(const CpuSource& source, const CpuTarget& target) {
  std::string key = compiler_key(target, source.prelude);
  for (const std::string& f : source.flags) key += f + '\n';
  // The name is in the object, as its debuggers' file name.
  return key + '\n' + source.name + '\n' + source.text;
}

/// The objects of one build: which are there, and which somebody is making.
class Objects {
 public:
  Objects(std::span<const CpuSource> sources, const CpuTarget& target, DiskCache* cache, int threads,
          const std::function<void()>& go_on)
      : sources_(sources),
        target_(target),
        cache_(cache),
        threads_(threads),
        go_on_(go_on),
        objects_(sources.size()) {
    for (const CpuSource& s : sources) keys_.push_back(key_of(s, target));
  }

  std::vector<std::string> make() {
    std::vector<size_t> missing;
    for (size_t i = 0; i < sources_.size(); ++i)
      if (!cache_ || !take(i, false)) missing.push_back(i);
    // First what nobody else makes, then what others should have made meanwhile.
    missing = compile(missing, false);
    missing = compile(missing, true);
    KILN_ASSERT(missing.empty(), "{} objects are nobody's", missing.size());
    return std::move(objects_);
  }
  int compiled() const { return compiled_; }

 private:
  bool take(size_t i, bool again) {
    std::optional<std::string> hit = cache_->load(kKind, keys_[i], again);
    if (hit) objects_[i] = std::move(*hit);
    return hit.has_value();
  }

  /// Compiles those of `missing` that nobody else has claimed; returns the others. With `wait`, others get
  /// their time first, and there are none left.
  std::vector<size_t> compile(const std::vector<size_t>& missing, bool wait) {
    std::vector<CpuSource> sources;
    for (size_t i : missing) sources.push_back(sources_[i]);
    std::vector<FileLock> claims(missing.size());
    std::vector<char> busy(missing.size());  // not bool: threads write neighbours
    const auto wanted = [&](size_t m) {
      if (go_on_) go_on_();
      if (!cache_) return true;
      claims[m] = cache_->claim(kKind, keys_[missing[m]], wait);
      busy[m] = claims[m].state() == FileLock::State::busy && !wait;
      const bool there = take(missing[m], true);
      if (there) busy[m] = false;
      if (there) claims[m].release();
      return !there && !busy[m];
    };
    const auto done = [&](size_t m, std::string&& object) {
      log(LogLevel::debug, "compiled {} for {}", sources[m].name, target_.cpu);
      if (cache_) cache_->store(kKind, keys_[missing[m]], object);
      claims[m].release();
      objects_[missing[m]] = std::move(object);
      ++compiled_;
    };
    // A store waits 10 ms for the disk, a third of a compile: one thread more keeps the processors busy.
    compile_each(sources, target_, cache_ ? threads_ + 1 : threads_, wanted, done);
    std::vector<size_t> others;
    for (size_t m = 0; m < missing.size(); ++m)
      if (busy[m]) others.push_back(missing[m]);
    return others;
  }

  std::span<const CpuSource> sources_;
  const CpuTarget& target_;
  DiskCache* cache_;
  int threads_;
  const std::function<void()>& go_on_;
  std::vector<std::string> keys_, objects_;
  std::atomic<int> compiled_{0};
};

}  // namespace

std::string object_key(const CpuSource& source, const CpuTarget& target) {
  return key_of(source, target);
}

std::vector<std::string> make_objects(std::span<const CpuSource> sources, const CpuTarget& target,
                                      DiskCache* cache, int threads, BuildCost& cost,
                                      const std::function<void()>& go_on) {
  const auto start = std::chrono::steady_clock::now();
  Objects objects(sources, target, cache, threads, go_on);
  std::vector<std::string> out = objects.make();
  cost.compiled = objects.compiled();
  cost.cached = static_cast<int>(sources.size()) - cost.compiled;
  cost.compile_ms = ms_since(start);
  return out;
}

KernelImage link_image(std::span<const std::string> objects, std::span<const std::string> names,
                       const CpuTarget& target, BuildCost& cost) {
  const auto start = std::chrono::steady_clock::now();
  KernelImage image{target.str(), {names.begin(), names.end()}, link_shared(objects, names)};
  cost.link_ms = ms_since(start);
  return image;
}

KernelImage build_image(std::span<const CpuSource> sources, std::span<const std::string> names,
                        const CpuTarget& target, DiskCache* cache, int threads, BuildCost* cost) {
  BuildCost unused;
  BuildCost& c = cost ? *cost : unused;
  return link_image(make_objects(sources, target, cache, threads, c), names, target, c);
}

}  // namespace kiln
