// SPDX-License-Identifier: Apache-2.0
#include "ir/base/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "ir/base/error.h"

namespace kiln {
namespace KILN_FILE {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return std::string(to_string(e.kind())) + ": " + e.what();
  }
  return "no error";
}

/// An environment variable for the length of a scope.
class Env {
 public:
  Env(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Env() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Options, TableIsSortedAndDocumented) {
  std::string_view last;
  for (const OptionDef& o : option_table()) {
    EXPECT_LT(last, o.name);
    EXPECT_TRUE(o.name.starts_with("KILN_")) << o.name;
    EXPECT_GT(o.doc.size(), 10u) << o.name;
    last = o.name;
  }
}

TEST(Options, EveryDefaultFitsItsType) {
  for (const OptionDef& o : option_table()) {
    if (std::getenv(std::string(o.name).c_str())) continue;
    EXPECT_EQ(option(o.name), o.fallback) << o.name;
  }
}

TEST(Options, OverrideBeatsEnvironmentBeatsDefault) {
  EXPECT_EQ(option("KILN_COMPILE"), "on");
  const Env env("KILN_COMPILE", "off");
  EXPECT_EQ(option("KILN_COMPILE"), "off");
  set_option("KILN_COMPILE", "check");
  EXPECT_EQ(option("KILN_COMPILE"), "check");
  set_option("KILN_COMPILE", "");
  EXPECT_EQ(option("KILN_COMPILE"), "off");
}

TEST(Options, EmptyEnvironmentIsUnset) {
  const Env env("KILN_COMPILE", "");
  EXPECT_EQ(option("KILN_COMPILE"), "on");
}

TEST(Options, TypedReads) {
  EXPECT_FALSE(option_flag("KILN_UPDATE_GOLDEN"));
  const Env poison("KILN_POISON", "1"), threads("KILN_NUM_THREADS", "12"), dump("KILN_DUMP", "trace,,plan,");
  EXPECT_TRUE(option_flag("KILN_POISON"));
  EXPECT_EQ(option_int("KILN_NUM_THREADS"), 12);
  EXPECT_EQ(option_tokens("KILN_DUMP"), (std::vector<std::string>{"trace", "plan"}));
}

TEST(Options, BadValuesSayWhatFits) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"KILN_POISON", "yes", "invalid: KILN_POISON: bad value; got 'yes', expected 0 or 1"},
      {"KILN_NUM_THREADS", "-1",
       "invalid: KILN_NUM_THREADS: bad value; got '-1', expected number, 0 or more"},
      {"KILN_NUM_THREADS", "4x",
       "invalid: KILN_NUM_THREADS: bad value; got '4x', expected number, 0 or more"},
      {"KILN_NUM_THREADS", "99999999999999999999",
       "invalid: KILN_NUM_THREADS: bad value; got '99999999999999999999', expected number, 0 or more"},
      {"KILN_COMPILE", "On", "invalid: KILN_COMPILE: bad value; got 'On', expected one of on, off, check"},
      {"KILN_COMPILE", "on|off",
       "invalid: KILN_COMPILE: bad value; got 'on|off', expected one of on, off, check"}};
  for (const auto& [name, value, message] : cases) {
    EXPECT_EQ(message_of([&] { set_option(name, value); }), message);
    const Env env(name, value);
    EXPECT_EQ(message_of([&] { option(name); }), message);
  }
  EXPECT_TRUE(
      message_of([] {
        set_option("KILN_DUMP", "trace,frob");
      }).starts_with("invalid: KILN_DUMP: bad value; got 'trace,frob', expected list of trace, grad, "));
}

TEST(Options, UnknownNamesListTheKnownOnes) {
  std::string all;
  for (const OptionDef& o : option_table()) all += " " + std::string(o.name);
  const std::string message = "invalid: unknown switch KILN_FROB; known switches:" + all;
  EXPECT_EQ(message_of([] { option("KILN_FROB"); }), message);
  EXPECT_EQ(message_of([] { set_option("KILN_FROB", "1"); }), message);
  EXPECT_EQ(message_of(check_environment), "no error");
  const Env env("KILN_FROB", "1");
  EXPECT_EQ(message_of(check_environment), message);
}

TEST(Options, SystemEnvironmentIsReadThrough) {
  EXPECT_EQ(system_env("SURELY_UNSET_VARIABLE"), "");
  const Env env("SURELY_UNSET_VARIABLE", "x");
  EXPECT_EQ(system_env("SURELY_UNSET_VARIABLE"), "x");
}

TEST(Options, EnvironmentOfAnotherProgram) {
  const Env kept("SURELY_KEPT_VARIABLE", "a=b"), replaced("SURELY_SET_VARIABLE", "old");
  const Env gone("SURELY_GONE_VARIABLE", "x");
  const auto made = environment_with({{"SURELY_SET_VARIABLE", "new"}}, {"SURELY_GONE_VARIABLE"});
  const auto count = [&](const std::string& entry) { return std::count(made.begin(), made.end(), entry); };
  EXPECT_EQ(count("SURELY_KEPT_VARIABLE=a=b"), 1);
  EXPECT_EQ(count("SURELY_SET_VARIABLE=new"), 1);
  EXPECT_EQ(count("SURELY_SET_VARIABLE=old"), 0);
  EXPECT_EQ(count("SURELY_GONE_VARIABLE=x"), 0);
}

}  // namespace KILN_FILE
}  // namespace kiln
