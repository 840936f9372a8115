// SPDX-License-Identifier: Apache-2.0
// A rank's post is one key, "<prefix>/<rank>": "<calls begun> <digest of the last> <state> <text>". Only that
// rank writes it, and the number never falls. A rank cannot go on from a call without all the others: who is
// in it finds there, whatever has happened since, what each of them was about to do. The text says what it
// builds, or how it has failed, perhaps long ago: others are still one call ahead of it then.
#include "runtime/agreement.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <mutex>
#include <set>
#include <utility>

#include "ir/base/hash.h"
#include "ir/base/text.h"
#include "runtime/collective_queue.h"

namespace kiln {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char *kBuilding = "building", *kReady = "ready", *kFailed = "failed", *kLeft = "left";

// How often to look at a rank's post, where something else is waited for.
constexpr Seconds kLook{0.5};

Clock::time_point after(Seconds s) { return Clock::now() + std::chrono::duration_cast<Clock::duration>(s); }

/// The texts and lines of a plan, one collective a line, as others read them.
std::string describe(const CommunicationPlan& plan) {
  std::string out;
  for (const PlannedCollective& c : plan.collectives)
    out += c.text + (c.loc.known() ? fmt::format(" ({})", c.loc.str()) : "") + "\n";
  return out;
}

/// What a rank has posted.
struct Post {
  int64_t calls = 0;
  std::string digest, state, text;

  static Post parse(const std::string& value) {
    std::string_view rest = value;
    const auto word = [&] {
      const std::string_view w = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), w.size() + 1));
      return w;
    };
    Post p;
    const std::string_view calls = word();
    std::from_chars(calls.data(), calls.data() + calls.size(), p.calls);
    p.digest = word();
    p.state = word();
    p.text = rest;
    return p;
  }
  /// "is building call 3: first call".
  std::string str() const {
    if (state.empty()) return "has made no call";
    if (state == kBuilding) return fmt::format("is building call {}: {}", calls + 1, text);
    if (state == kFailed) return text;
    return fmt::format("has {} {} call{}{}{}", state == kLeft ? "left after" : "made", calls,
                       calls == 1 ? "" : "s", text.empty() ? "" : ", and ", text);
  }
};

/// How long to wait for a rank, as its posts change.
class Patience {
 public:
  Patience(Seconds timeout, Seconds build_limit)
      : timeout_(timeout), deadline_(after(timeout)), built_(after(build_limit)) {}
  Seconds left() const { return deadline_ - Clock::now(); }
  Seconds waited() const { return Clock::now() - start_; }
  void see(const Post& p) {
    if (p.state == kBuilding) deadline_ = std::max(deadline_, built_);
    else if (p.state == kFailed) deadline_ = std::min(deadline_, after(timeout_));  // it may never come
    else deadline_ = after(timeout_);  // it has finished building something else
  }

 private:
  const Seconds timeout_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point deadline_;
  const Clock::time_point built_;  ///< from the start on: who builds again and again is not waited for
};

}  // namespace

CommunicationPlan::CommunicationPlan(std::vector<PlannedCollective> in_order)
    : collectives(std::move(in_order)) {
  std::string all;
  for (const PlannedCollective& c : collectives) all += c.text + "\n";
  digest = hash128(all).hex();
}

std::shared_ptr<const CommunicationPlan> in_graph(const CommunicationPlan& plan) {
  std::vector<PlannedCollective> all = plan.collectives;
  for (PlannedCollective& c : all) c.text += " in a recorded graph";
  return std::make_shared<const CommunicationPlan>(std::move(all));
}

namespace {

/// The how-manieth of this rank on such groups: the same number on every rank.
std::string numbered(ProcessGroup& group) {
  const std::string base = group.device().is_cuda() ? "agreement/cuda" : "agreement";
  return fmt::format("{}/{}", base, group.store()->add(fmt::format("{}/made/{}", base, group.rank()), 1));
}

}  // namespace

/// What queued checks need. When it goes, with the last of them, the others are told that this rank makes no
/// more calls.
class Communicator::End {
 public:
  End(ProcessGroup& group, Seconds build_limit, std::string prefix)
      : prefix(std::move(prefix)), group_(group), store_(group.store()), build_limit_(build_limit) {}

  ~End() {
    try {
      write(checked_, digest_, kLeft, failure_);
    } catch (const Error&) {  // nobody is there to read it
    }
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  // What the caller's thread knows.
  void building(int64_t calls, const std::string& digest, const std::string& what) {
    const std::lock_guard lock(mutex_);
    write(calls, digest, kBuilding, what);
  }
  void built(int64_t calls, const std::string& digest) {
    const std::lock_guard lock(mutex_);
    write(calls, digest, kReady, failure_);
  }
  void failed(int64_t calls, bool in_call, const std::string& digest, const std::string& why) {
    const std::lock_guard lock(mutex_);
    failure_ = fmt::format("failed in call {}: {}", in_call ? calls : calls + 1, why);
    write(calls, digest, kFailed, failure_);
  }

  // In a turn, on the group's thread.
  /// What `key` has when that is not `known`; nothing after `time`. Throws: comm, when nobody can come.
  std::optional<std::string> news(const std::string& key, Seconds time, const std::string& known,
                                  const std::string& here);
  std::string from_first(const std::string& name, const std::string& mine, const std::string& here);
  /// Posts the call, and looks at the others.
  void check(int64_t call, const CommunicationPlan& plan, const CollectiveSite& site) {
    describe_once(plan);
    {
      const std::lock_guard lock(mutex_);
      checked_ = call;
      digest_ = plan.digest;
      write(call, digest_, kReady, failure_);
    }
    agree(call, plan, site);
  }

  /// "<what> of DistributedDataParallel #1": what other ranks call the turn, too.
  std::string title(const std::string& what) const {
    return fmt::format("{} of DistributedDataParallel #{}", what, prefix.substr(prefix.rfind('/') + 1));
  }

  const std::string prefix;

 private:
  std::string key(int rank) const { return fmt::format("{}/{}", prefix, rank); }
  void write(int64_t calls, const std::string& digest, const char* state, const std::string& text) {
    store_->set(key(group_.rank()),
                fmt::format("{} {} {} {}", calls, digest.empty() ? "-" : digest, state, text));
  }
  void agree(int64_t call, const CommunicationPlan& plan, const CollectiveSite& site);
  void describe_once(const CommunicationPlan& plan);
  Post await(int peer, int64_t call, const CollectiveSite& site);
  std::string value_of(int peer, const std::string& name, const std::string& here);
  [[noreturn]] void differ(int peer, int64_t call, const CommunicationPlan& mine, const std::string& theirs);

  ProcessGroup& group_;
  const std::shared_ptr<Store> store_;
  const Seconds build_limit_;
  std::set<std::string> described_;  ///< digests whose texts are in the store; the group's thread's
  std::mutex mutex_;
  int64_t checked_ = 0;  ///< the last call that was posted
  std::string digest_;   ///< of that call
  std::string failure_;  ///< "failed in call 3: ...", the last one
};

Communicator::Communicator(std::shared_ptr<ProcessGroup> group, Seconds build_limit)
    : group_(std::move(group)), end_(std::make_shared<End>(*group_, build_limit, numbered(*group_))) {}

Communicator::~Communicator() = default;

const std::string& Communicator::prefix() const { return end_->prefix; }

void Communicator::building(const std::string& what) { end_->building(call_, digest_, what); }

void Communicator::built() { end_->built(call_, digest_); }

void Communicator::failed(const std::string& why) {
  end_->failed(call_, std::exchange(in_call_, false), digest_, why);
}

void Communicator::together(const std::string& what, std::function<void()> job, const CollectiveSite& site) {
  group_->run(end_->title(what), std::move(job), site)->wait();
}

std::optional<std::string> Communicator::await(const std::string& key, const std::string& here) {
  return end_->news(key, group_->timeout(), {}, here);
}

std::string Communicator::from_first(const std::string& name, const std::string& mine,
                                     const std::string& what, const CollectiveSite& site) {
  std::string first;
  const auto job = [&] { first = end_->from_first(name, mine, describe(what, site)); };
  together(what, job, site);
  return first;
}

void Communicator::begin_call(std::shared_ptr<const CommunicationPlan> plan, const CollectiveSite& site) {
  digest_ = plan->digest;
  in_call_ = true;
  ++call_;
  // On the group's thread, so that the step goes on meanwhile.
  group_->run(
      end_->title(fmt::format("call {}", call_)),
      [end = end_, call = call_, plan = std::move(plan), site] { end->check(call, *plan, site); }, site);
}

/// Before the first post of its digest, so that whoever sees that can read the rest.
void Communicator::End::describe_once(const CommunicationPlan& plan) {
  if (described_.insert(plan.digest).second)
    store_->set(fmt::format("{}/plan/{}/{}", prefix, group_.rank(), plan.digest), describe(plan));
}

std::optional<std::string> Communicator::End::news(const std::string& key, Seconds time,
                                                   const std::string& known, const std::string& here) {
  const Clock::time_point end = after(time);
  while (true) {
    const Seconds left = end - Clock::now();
    if (left.count() <= 0) return std::nullopt;
    try {
      if (auto value = store_->wait(key, std::min(left, kLook), known)) return value;
    } catch (const Error& e) {  // who is lost may have said why
      const auto why = group_.failure();
      throw Error(ErrorKind::comm,
                  why ? *why : fmt::format("rank {} is in {}, but {}", group_.rank(), here, e.what()));
    }
    if (const auto why = group_.broken()) throw Error(ErrorKind::comm, *why);
  }
}

Post Communicator::End::await(int peer, int64_t call, const CollectiveSite& site) {
  Patience patience(group_.timeout(), build_limit_);
  const std::string here = describe(fmt::format("call {}", call), site);
  std::string known;
  Post p;
  while (true) {
    std::optional<std::string> value;
    try {
      value = news(key(peer), patience.left(), known, here);
    } catch (const Error& e) {
      const std::string last = known.empty() ? "" : fmt::format("; rank {} {}", peer, p.str());
      throw Error(ErrorKind::comm, e.what() + last, site.loc);
    }
    if (!value)
      throw Error(ErrorKind::comm,
                  fmt::format("rank {} waited {:.1f} s for rank {} to come to {}; rank {} {}", group_.rank(),
                              patience.waited().count(), peer, here, peer, p.str()),
                  site.loc);
    known = *value;
    p = Post::parse(known);
    if (p.calls >= call) return p;
    if (p.state == kLeft) {
      const auto why = group_.failure();
      throw Error(ErrorKind::comm,
                  fmt::format("{} rank {} {}",
                              why ? *why + ";" : fmt::format("rank {} is in {}, but", group_.rank(), here),
                              peer, p.str()),
                  site.loc);
    }
    patience.see(p);
  }
}

std::string Communicator::End::value_of(int peer, const std::string& name, const std::string& here) {
  Patience patience(group_.timeout(), build_limit_);
  std::string known;
  while (true) {
    const Seconds left = std::max(patience.left(), Seconds(0.001));
    if (const auto value = news(name, std::min(left, kLook), {}, here)) return *value;
    const std::string now = store_->get(key(peer)).value_or("");
    const Post p = Post::parse(now);
    if (now != known) patience.see(p);
    known = now;
    KILN_CHECK(patience.left().count() > 0 && p.state != kLeft, comm,
               "rank {} waited {:.1f} s for rank {} to come to {}; rank {} {}", group_.rank(),
               patience.waited().count(), peer, here, peer, p.str());
  }
}

/// Rank 0 waits, too: whoever goes on from a turn that others have not come to does not meet them any more.
std::string Communicator::End::from_first(const std::string& name, const std::string& mine,
                                          const std::string& here) {
  const auto of = [&](int rank) { return fmt::format("{}/{}/{}", prefix, name, rank); };
  store_->set(of(group_.rank()), mine);
  if (group_.rank() > 0) return value_of(0, of(0), here);
  for (int peer = 1; peer < group_.size(); ++peer) value_of(peer, of(peer), here);
  return mine;
}

void Communicator::End::agree(int64_t call, const CommunicationPlan& plan, const CollectiveSite& site) {
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank()) continue;
    const Post p = await(peer, call, site);
    // Collectives of GPUs do not hold up who has compared the two posts already.
    if (group_.device().is_cuda() && p.calls == call + 1) continue;
    KILN_CHECK(p.calls == call, comm, "rank {} is in call {}, but rank {} {}", group_.rank(), call, peer,
               p.str());
    if (p.digest == plan.digest) continue;
    const auto theirs = store_->get(fmt::format("{}/plan/{}/{}", prefix, peer, p.digest));
    differ(peer, call, plan, theirs.value_or(""));
  }
}

void Communicator::End::differ(int peer, int64_t call, const CommunicationPlan& mine,
                               const std::string& theirs) {
  const std::vector<std::string> own = split(describe(mine), '\n'), other = split(theirs, '\n');
  const auto same = [&](size_t i) {
    if (i >= own.size() || i >= other.size()) return false;
    const std::string& text = mine.collectives[i].text;
    return other[i] == text || other[i].starts_with(text + " (");
  };
  size_t at = 0;
  while (same(at)) ++at;
  const auto say = [&](const std::vector<std::string>& lines) {
    return at < lines.size() ? lines[at] : fmt::format("none (there are {})", lines.size());
  };
  const int me = group_.rank(), low = std::min(me, peer), high = std::max(me, peer);
  throw Error(
      ErrorKind::comm,
      fmt::format("ranks {} and {} are about to communicate differently in call {}: collective "
                  "{} is {} on rank {}, {} on rank {} (they took different paths through the program)",
                  low, high, call, at, say(me == low ? own : other), low, say(me == low ? other : own), high),
      at < own.size() ? mine.collectives[at].loc : SourceLoc{});
}

}  // namespace kiln
