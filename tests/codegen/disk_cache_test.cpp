// SPDX-License-Identifier: Apache-2.0
// The disk cache against damage, foreign files, folders it may not write, other processes and a full shelf.
#include "codegen/disk_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "ir/base/error.h"
#include "ir/base/options.h"

namespace kiln {
namespace KILN_FILE {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
constexpr int64_t kMegabyte = 1 << 20;

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest() { fs::remove_all(root_); }
  ~DiskCacheTest() override { fs::remove_all(root_); }

  std::string root_ = ::testing::TempDir() + "kiln-cache-test-" + std::to_string(getpid());
  DiskCache cache_{root_ + "/a/b", 100 * kMegabyte};
};

std::string slurp(const std::string& path) {
  std::stringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}
void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}
// Sets the time of last use to `seconds` ago.
void age(const std::string& path, int64_t seconds) {
  const timespec then = {time(nullptr) - seconds, 0}, times[2] = {then, then};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0) << path;
}
int64_t age_of(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 ? time(nullptr) - st.st_mtime : -1;
}

TEST_F(DiskCacheTest, RoundTripAndStats) {
  const std::string binary("\0\xff text \n\0", 9);
  EXPECT_EQ(cache_.load("plan", "key"), std::nullopt);
  cache_.store("plan", "key", binary);
  cache_.store("plan", "", "empty key");
  cache_.store("object", "key", "");
  EXPECT_EQ(cache_.load("plan", "key"), binary);
  EXPECT_EQ(cache_.load("plan", ""), "empty key");
  EXPECT_EQ(cache_.load("object", "key"), "") << "kinds are apart, and empty payloads are payloads";
  cache_.store("plan", "key", "second");
  EXPECT_EQ(cache_.load("plan", "key"), "second");
  const DiskCache::Stats s = cache_.stats();
  EXPECT_EQ(s.hits, 4);
  EXPECT_EQ(s.misses, 1);
  EXPECT_EQ(s.damaged, 0);
  EXPECT_EQ(s.stores, 4);
  EXPECT_EQ(s.failed_stores, 0);
  EXPECT_EQ(DiskCache(cache_.folder(), kMegabyte).load("plan", "key"), "second") << "another object reads it";
}

TEST_F(DiskCacheTest, FoldersArePrivateAndNoTemporaryStays) {
  cache_.store("plan", "key", "x");
  for (const char* folder : {"/a", "/a/b", "/a/b/plan"})
    EXPECT_EQ(fs::status(root_ + folder).permissions(), fs::perms::owner_all) << folder;
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ + "/a/b/plan"), fs::directory_iterator()), 1);
}

TEST_F(DiskCacheTest, EveryFlippedByteAndEveryCutIsAMissThatHeals) {
  const std::string key = "the key text", payload = "the payload";
  cache_.store("plan", key, payload);
  const std::string path = cache_.path_of("plan", key), good = slurp(path);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 0x10;
    spill(path, bad);
    EXPECT_EQ(cache_.load("plan", key), std::nullopt) << "flipped byte " << i;
    spill(path, good.substr(0, i));
    EXPECT_EQ(cache_.load("plan", key), std::nullopt) << "cut at " << i;
  }
  spill(path, good + "x");
  EXPECT_EQ(cache_.load("plan", key), std::nullopt) << "longer than it says";
  EXPECT_EQ(cache_.stats().damaged, static_cast<int64_t>(2 * good.size() + 1));
  cache_.store("plan", key, payload);
  EXPECT_EQ(cache_.load("plan", key), payload);
}

TEST_F(DiskCacheTest, TheFullKeyIsCompared) {
  cache_.store("plan", "one", "payload of one");
  cache_.store("tune", "two", "payload of two");
  // As if both keys had one hash, or an entry were moved between kinds.
  fs::copy_file(cache_.path_of("plan", "one"), cache_.path_of("plan", "two"));
  fs::copy_file(cache_.path_of("tune", "two"), cache_.path_of("tune", "one"));
  fs::create_directories(root_ + "/a/b/object");
  fs::copy_file(cache_.path_of("plan", "one"), cache_.path_of("object", "one"));
  EXPECT_EQ(cache_.load("plan", "two"), std::nullopt);
  EXPECT_EQ(cache_.load("tune", "one"), std::nullopt);
  EXPECT_EQ(cache_.load("object", "one"), std::nullopt);
  EXPECT_EQ(cache_.stats().damaged, 0) << "a foreign key is no damage";
}

TEST_F(DiskCacheTest, ThingsThatAreNoFilesAreMisses) {
  cache_.store("plan", "other", "x");
  const std::string path = cache_.path_of("plan", "key");
  fs::create_directory(path);
  EXPECT_EQ(cache_.load("plan", "key"), std::nullopt);
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(cache_.load("plan", "key"), std::nullopt) << "and does not hang";
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  EXPECT_EQ(cache_.load("plan", "key"), std::nullopt);
  fs::remove(path);
  spill(path, "");
  ASSERT_EQ(truncate(path.c_str(), int64_t{1} << 43), 0) << "sparse: larger than memory";
  EXPECT_EQ(cache_.load("plan", "key"), std::nullopt);
}

TEST_F(DiskCacheTest, UnwritableFolderIsSaidOnceAndNeverThrows) {
  fs::create_directories(root_);
  spill(root_ + "/file", "in the way");
  DiskCache cache(root_ + "/file/cache", kMegabyte);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    cache.store("plan", "key", "payload");
    EXPECT_EQ(cache.load("plan", "key"), std::nullopt);
  }
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      fmt::format(
          "kiln warning: cache folder {0}/file/cache cannot be written: {0}/file/cache: Not a directory; "
          "going on without\n",
          root_));
  EXPECT_EQ(cache.stats().failed_stores, 3);
  EXPECT_EQ(cache.stats().stores, 0);
}

TEST_F(DiskCacheTest, ReadOnlyFolderServesReads) {
  cache_.store("plan", "key", "payload");
  const std::string kind = root_ + "/a/b/plan";
  fs::permissions(kind, fs::perms::owner_read | fs::perms::owner_exec);
  fs::permissions(cache_.path_of("plan", "key"), fs::perms::owner_read);
  EXPECT_EQ(cache_.load("plan", "key"), "payload");
  fs::permissions(kind, fs::perms::owner_all);
}

TEST_F(DiskCacheTest, FolderThatAnybodyMayWriteIsNotTrusted) {
  cache_.store("plan", "key", "payload");
  fs::permissions(root_ + "/a/b/plan", fs::perms::all);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cache_.load("plan", "key"), std::nullopt);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("cannot be trusted: everybody may write to its folder plan (chmod o-w); going on without"));
}

TEST_F(DiskCacheTest, SweepRemovesTheLeastRecentlyUsed) {
  DiskCache cache(root_, 10 * 1100);
  const std::string payload(1000, 'p');
  for (int i = 0; i < 10; ++i) {
    cache.store("plan", std::to_string(i), payload);
    age(cache.path_of("plan", std::to_string(i)), 1000 - i);
  }
  EXPECT_EQ(cache.load("plan", "0"), payload) << "a hit makes the oldest the youngest";
  EXPECT_LE(age_of(cache.path_of("plan", "0")), 5);
  cache.store("object", "one too many", payload);
  EXPECT_EQ(cache.load("plan", "1"), std::nullopt);
  EXPECT_EQ(cache.load("plan", "2"), std::nullopt) << "down to nine tenths of the bound";
  for (const char* key : {"0", "3", "9"}) EXPECT_EQ(cache.load("plan", key), payload) << key;
  EXPECT_EQ(cache.load("object", "one too many"), payload);
}

TEST_F(DiskCacheTest, SweepLeavesYoungEntriesLiveTemporariesAndForeignFiles) {
  DiskCache cache(root_, 1);
  cache.store("plan", "young", "payload");
  const std::string kind = root_ + "/plan/";
  const std::string live = kind + ".0123.0.tmp", stale = kind + ".0123.1.tmp", users = kind + "notes.txt";
  for (const std::string& path : {live, stale, users}) spill(path, "half an entry");
  age(live, 3600);
  age(stale, 25 * 3600);
  age(users, 99 * 3600);
  cache.sweep();
  EXPECT_EQ(cache.load("plan", "young"), "payload");
  EXPECT_TRUE(fs::exists(live));
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(users));
  age(cache.path_of("plan", "young"), 61);
  EXPECT_EQ(cache.sweep(), 0);
  EXPECT_EQ(cache.load("plan", "young"), std::nullopt);
}

TEST_F(DiskCacheTest, ListsReadsAndRemoves) {
  EXPECT_THROW(cache_.entries(), Error) << "there is no folder";
  cache_.store("plan", "key", "payload");
  cache_.store("object", "other", "");
  spill(root_ + "/a/b/plan/notes.txt", "not an entry");
  const std::vector<DiskCache::Entry> all = cache_.entries();
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all[0].kind, "object");
  EXPECT_EQ(all[1].kind, "plan");
  EXPECT_EQ(all[1].name, fs::path(cache_.path_of("plan", "key")).filename());
  EXPECT_EQ(all[1].bytes, static_cast<int64_t>(fs::file_size(cache_.path_of("plan", "key"))));
  EXPECT_LE(std::abs(all[1].used - time(nullptr)), 5);
  EXPECT_TRUE(all[1].written == 0 || std::abs(all[1].written - time(nullptr)) <= 5);
  age(cache_.path_of("plan", "key"), 500);
  EXPECT_EQ(cache_.read(all[1]).full_key, "plan\nkey");
  EXPECT_EQ(cache_.read(all[1]).payload, "payload");
  EXPECT_GE(age_of(cache_.path_of("plan", "key")), 500) << "looking is no use";

  fs::copy_file(cache_.path_of("plan", "key"), cache_.path_of("plan", "third"));
  fs::resize_file(cache_.path_of("object", "other"), 30);
  for (const DiskCache::Entry& e : cache_.entries()) {
    const EntryContent c = cache_.read(e);
    const std::string expected = e.name == all[1].name ? ""
                                 : e.kind == "object"  ? "shorter than a header"
                                                       : "it stands under another entry's name";
    EXPECT_EQ(c.why, expected);
    EXPECT_EQ(c.state, expected.empty() ? EntryState::good : EntryState::damaged);
  }
  DiskCache::Entry stale = cache_.entries()[1];
  EXPECT_TRUE(cache_.load("plan", "key"));
  stale.name = all[1].name;
  stale.used = time(nullptr) - 500;
  EXPECT_FALSE(cache_.remove(stale)) << "used since it was listed";
  EXPECT_TRUE(cache_.remove(cache_.entries()[0]));
  EXPECT_EQ(cache_.entries().size(), 2);
}

TEST_F(DiskCacheTest, OneClaimsOthersWait) {
  FileLock claim = cache_.claim("plan", "key", false);
  EXPECT_TRUE(claim.held());
  DiskCache other(cache_.folder(), kMegabyte, std::chrono::milliseconds(1));
  EXPECT_EQ(other.claim("plan", "key", true).state(), FileLock::State::busy);
  EXPECT_TRUE(other.claim("plan", "another", false).held());
  EXPECT_EQ(cache_.entries().size(), 0) << "a claim is no entry";
  claim.release();
  EXPECT_TRUE(other.claim("plan", "key", false).held());
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ + "/a/b/plan"), fs::directory_iterator()), 0);
  EXPECT_EQ(cache_.load("plan", "key", true), std::nullopt);
  EXPECT_EQ(cache_.stats().misses, 0) << "a second look is not counted";
}

TEST_F(DiskCacheTest, SwitchesNameTheFolder) {
  set_option("KILN_CACHE_DIR", root_ + "/chosen");
  EXPECT_EQ(DiskCache().folder(), root_ + "/chosen");
  set_option("KILN_CACHE_DIR", "");
}

TEST_F(DiskCacheTest, KindsAreThoseOfTheList) {
  for (const std::string_view kind : kCacheKinds) {
    cache_.store(kind, "key", kind);
    EXPECT_EQ(cache_.load(kind, "key"), kind);
  }
  const std::vector<DiskCache::Entry> all = cache_.entries();
  ASSERT_EQ(all.size(), std::size(kCacheKinds));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].kind, kCacheKinds[i]) << "in the order of names";
  for (const char* kind : {"", "other", "Bad/kind"}) EXPECT_THROW(cache_.store(kind, "key", ""), Error);
}

std::string payload_of(int key) { return std::string(20000 + 1000 * key, static_cast<char>('a' + key)); }

// Loads and stores eight keys at random; returns false on a payload that was never stored.
bool hammer(const std::string& folder, unsigned seed, int rounds) {
  DiskCache cache(folder, 100 * kMegabyte);
  for (int i = 0; i < rounds; ++i) {
    seed = seed * 1664525 + 1013904223;
    const int key = static_cast<int>(seed >> 16) % 8;
    const std::optional<std::string> hit = cache.load("object", std::to_string(key));
    if (hit && *hit != payload_of(key)) return false;
    if (!hit || seed % 3 == 0) cache.store("object", std::to_string(key), payload_of(key));
  }
  return cache.stats().damaged == 0 && cache.stats().failed_stores == 0;
}

TEST_F(DiskCacheTest, EightProcessesOneKilledWhileWriting) {
  constexpr int kProcesses = 8;
  pid_t children[kProcesses];
  for (int p = 0; p < kProcesses; ++p) {
    children[p] = fork();
    ASSERT_GE(children[p], 0);
    if (children[p] != 0) continue;
    if (p == 0) {
      // The victim does nothing but write one large entry over and over.
      DiskCache cache(root_, 100 * kMegabyte);
      while (true) cache.store("object", "large", std::string(8 * kMegabyte, 'z'));
    }
    _exit(hammer(root_, p, 60) ? 0 : 1);
  }
  DiskCache after(root_, 100 * kMegabyte);
  const fs::path entry = after.path_of("object", "large");
  const fs::path temporary = entry.parent_path() / fmt::format(".{}.0.tmp", entry.filename().string());
  while (!fs::exists(temporary)) usleep(100);
  kill(children[0], SIGKILL);
  for (int p = 0; p < kProcesses; ++p) {
    int status = 0;
    waitpid(children[p], &status, 0);
    const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    EXPECT_TRUE(p == 0 || well) << "process " << p;
  }
  const std::optional<std::string> large = after.load("object", "large");
  EXPECT_TRUE(!large || *large == std::string(8 * kMegabyte, 'z'));
  after.store("object", "large", "small");
  EXPECT_FALSE(fs::exists(temporary));
  for (int key = 0; key < 8; ++key) EXPECT_EQ(after.load("object", std::to_string(key)), payload_of(key));
  EXPECT_EQ(after.stats().damaged, 0);
}

TEST_F(DiskCacheTest, ThreadsShareOneCache) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const int key = (i + t) % 4;
        const std::optional<std::string> hit = cache_.load("plan", std::to_string(key));
        if (hit && *hit != payload_of(key)) ++wrong;
        cache_.store("plan", std::to_string(key), payload_of(key));
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache_.stats().stores, 80);
  EXPECT_EQ(cache_.stats().damaged, 0);
}

}  // namespace KILN_FILE
}  // namespace kiln
