// The table of settings: defaults parse, the environment wins, nonsense is refused by name.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "core/error.h"
#include "core/log.h"
#include "core/settings.h"
#include "core/settings_page.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

using std::chrono::nanoseconds;
using test::Variable;
using namespace std::chrono_literals;

class Settings : public testing::Test {
 protected:
  void SetUp() override {
    for (const Setting& setting : settings()) unsetenv(std::string(setting.name).c_str());
  }
};

TEST_F(Settings, EveryDefaultParses) {
  std::set<std::string_view> names;
  for (const Setting& setting : settings()) {
    EXPECT_TRUE(setting.name.starts_with("TUTTI_"));
    EXPECT_FALSE(setting.meaning.empty()) << setting.name;
    names.insert(setting.name);
    switch (setting.type) {
      case SettingType::text:
        EXPECT_EQ(setting_text(setting.name), setting.default_value);
        break;
      case SettingType::integer:
        EXPECT_NO_THROW(setting_integer(setting.name)) << setting.name;
        break;
      case SettingType::bytes:
        EXPECT_NO_THROW(setting_bytes(setting.name)) << setting.name;
        break;
      case SettingType::seconds:
        EXPECT_NO_THROW(setting_seconds(setting.name)) << setting.name;
        break;
      case SettingType::boolean:
        EXPECT_NO_THROW(setting_boolean(setting.name)) << setting.name;
        break;
    }
  }
  EXPECT_EQ(names.size(), settings().size());
}

TEST_F(Settings, HaveTheirDefaults) {
  EXPECT_EQ(setting_text("TUTTI_LOG"), "warn");
  EXPECT_EQ(setting_text("TUTTI_ALGORITHM"), "");
  EXPECT_EQ(setting_seconds("TUTTI_TIMEOUT"), 0s);
  EXPECT_EQ(setting_seconds("TUTTI_REPORT_AFTER"), 30s);
  EXPECT_EQ(setting_bytes("TUTTI_SLOT_BYTES"), 0u);
  EXPECT_EQ(setting_bytes("TUTTI_TILE_BYTES"), 4u << 20);
  EXPECT_EQ(setting_integer("TUTTI_SLOTS"), 0);
  EXPECT_EQ(setting_integer("TUTTI_SPIN"), -1);
  EXPECT_TRUE(setting_boolean("TUTTI_CMA"));
}

TEST_F(Settings, TheEnvironmentWins) {
  const Variable log("TUTTI_LOG", "debug");
  const Variable slots("TUTTI_SLOTS", "16");
  const Variable bytes("TUTTI_SLOT_BYTES", "1M");
  const Variable timeout("TUTTI_TIMEOUT", "0.5");
  const Variable cma("TUTTI_CMA", "off");
  EXPECT_EQ(setting_text("TUTTI_LOG"), "debug");
  EXPECT_EQ(setting_integer("TUTTI_SLOTS"), 16);
  EXPECT_EQ(setting_bytes("TUTTI_SLOT_BYTES"), 1u << 20);
  EXPECT_EQ(setting_seconds("TUTTI_TIMEOUT"), 500ms);
  EXPECT_FALSE(setting_boolean("TUTTI_CMA"));
}

TEST_F(Settings, ReadSecondsAndRefuseOtherText) {
  const auto seconds = [](const char* text) {
    const Variable variable("TUTTI_TIMEOUT", text);
    return setting_seconds("TUTTI_TIMEOUT");
  };
  EXPECT_EQ(seconds("30"), 30s);
  EXPECT_EQ(seconds("30s"), 30s);
  EXPECT_EQ(seconds("100ms"), 100ms);
  EXPECT_EQ(seconds("0.000000001"), nanoseconds(1));
  for (const char* text : {"", " 1", "1 s", "-1", "nan", "inf", "1e3", "1m", "99999999999", "ms"}) {
    EXPECT_THROW(seconds(text), Error) << text;
  }
}

TEST_F(Settings, ReadBooleansAndRefuseOtherText) {
  const auto boolean = [](const char* text) {
    const Variable variable("TUTTI_WINDOWS", text);
    return setting_boolean("TUTTI_WINDOWS");
  };
  for (const char* text : {"1", "true", "yes", "on"}) EXPECT_TRUE(boolean(text)) << text;
  for (const char* text : {"0", "false", "no", "off"}) EXPECT_FALSE(boolean(text)) << text;
  for (const char* text : {"", "2", "maybe", "TRUE "}) EXPECT_THROW(boolean(text), Error) << text;
}

TEST_F(Settings, ReadIntegersAndRefuseOtherText) {
  const auto integer = [](const char* text) {
    const Variable variable("TUTTI_SPIN", text);
    return setting_integer("TUTTI_SPIN");
  };
  EXPECT_EQ(integer("0"), 0);
  EXPECT_EQ(integer("-1"), -1);
  EXPECT_EQ(integer("1000000000"), 1'000'000'000);
  for (const char* text : {"", "x", "1x", "1.5", "0x10", "9223372036854775808", "-7"}) {
    EXPECT_THROW(integer(text), Error) << text;
  }
}

TEST_F(Settings, ReadBytesAndRefuseOtherText) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("4096B"), 4096u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("64k"), 65536u);
  EXPECT_EQ(parse_bytes("64KB"), 65536u);
  EXPECT_EQ(parse_bytes("2GiB"), std::size_t{2} << 30);
  EXPECT_EQ(parse_bytes("1.5G"), std::size_t{3} << 29);
  EXPECT_EQ(parse_bytes("0.25KiB"), 256u);
  EXPECT_EQ(parse_bytes("2.1M"), 2202009u);  // and a part of a byte
  EXPECT_EQ(parse_bytes("8388607.5T"), std::size_t{16777215} << 39);
  for (const char* const wrong : {"1.5", "1.5B", "1.G", ".5G", "1.5.5G", "1,5G", "-1.5G", "1.5X"}) {
    EXPECT_THROW(parse_bytes(wrong), Error) << wrong;
  }
  EXPECT_EQ(parse_bytes("1T"), std::size_t{1} << 40);
  EXPECT_EQ(parse_bytes("16777215T"), std::size_t{16777215} << 40);
  for (const char* text :
       {"", "K", "-1", "1X", "1KX", "1iB", "1 K", "16777216T", "18446744073709551616"}) {
    EXPECT_THROW(parse_bytes(text), Error) << text;
  }
}

TEST_F(Settings, AnErrorNamesVariableValueAndExpectation) {
  const Variable variable("TUTTI_SLOT_BYTES", "lots");
  try {
    setting_bytes("TUTTI_SLOT_BYTES");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "the environment variable TUTTI_SLOT_BYTES is \"lots\"; expected a number of "
                 "bytes, such as 4096, 64K, 1.5M or 2GiB, from 1K to 1G (default: 0)");
  }
}

TEST_F(Settings, WhatIsOutOfRangeIsRefused) {
  const auto refused = [](const char* name, const char* text, auto read, const char* expected) {
    const Variable variable(name, text);
    try {
      read(name);
      ADD_FAILURE() << name << "=" << text << " was accepted";
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(what.find(std::string(name) + " is \"" + text + "\"; expected"), std::string::npos)
          << what;
      EXPECT_NE(what.find(expected), std::string::npos) << what;
    }
  };
  for (const char* text : {"-3", "1", "4097", "9223372036854775807"}) {
    refused("TUTTI_SLOTS", text, setting_integer, "a whole number, from 2 to 4096 (default: 0)");
  }
  refused("TUTTI_CUDA_BLOCKS", "-1", setting_integer, "at least 0");
  refused("TUTTI_SPIN", "-2", setting_integer, "from 0 to 1000000000 (default: -1)");
  refused("TUTTI_SPIN", "1000000001", setting_integer, "from 0 to 1000000000 (default: -1)");
  refused("TUTTI_SLOT_BYTES", "1", setting_bytes, "from 1K to 1G");
  refused("TUTTI_SLOT_BYTES", "2G", setting_bytes, "from 1K to 1G");
  refused("TUTTI_SLOT_BYTES", "-1", setting_bytes, "from 1K to 1G");
  refused("TUTTI_TILE_BYTES", "0", setting_bytes, "from 4K to 1T");
  refused("TUTTI_TIMEOUT", "-1", setting_seconds, "at least 0");
  refused("TUTTI_REPORT_AFTER", "-0.5", setting_seconds, "at least 0");
  refused("TUTTI_RENDEZVOUS_TIMEOUT", "0", setting_seconds, "at least 1ms");
  const Variable chosen("TUTTI_SLOTS", "0");
  EXPECT_EQ(setting_integer("TUTTI_SLOTS"), 0);
}

TEST_F(Settings, WhatAProgramSaysHasTheSameRange) {
  EXPECT_TRUE(setting_allows("TUTTI_SLOTS", 0));
  EXPECT_FALSE(setting_allows("TUTTI_SLOTS", 1));
  EXPECT_TRUE(setting_allows("TUTTI_SLOTS", 4096));
  EXPECT_FALSE(setting_allows("TUTTI_SLOTS", UINT64_MAX));
  EXPECT_TRUE(setting_allows("TUTTI_SLOT_BYTES", 1024));
  EXPECT_FALSE(setting_allows("TUTTI_SLOT_BYTES", 1023));
  EXPECT_NO_THROW(check_setting("TUTTI_TIMEOUT", "x", nanoseconds::max()));
  EXPECT_THROW(check_setting("TUTTI_TIMEOUT", "x", nanoseconds(-1)), Error);
}

TEST_F(Settings, OnlyWhatIsInTheTableCanBeRead) {
  EXPECT_THROW(setting_text("TUTTI_NO_SUCH_THING"), Error);
  EXPECT_THROW(setting_integer("TUTTI_LOG"), Error);  // the wrong type
}

TEST_F(Settings, ThePageHasEverySetting) {
  const std::string page = settings_markdown();
  for (const Setting& setting : settings()) {
    EXPECT_NE(page.find("| `" + std::string(setting.name) + "` |"), std::string::npos);
    EXPECT_NE(page.find(setting.meaning), std::string::npos);
  }
  EXPECT_TRUE(page.starts_with("# Settings\n"));
  EXPECT_TRUE(page.ends_with("\n"));
}

TEST_F(Settings, TheLogLevelIsASetting) {
  const Variable variable("TUTTI_LOG", "error");  // before this process logs for the first time
  EXPECT_TRUE(log().should_log(spdlog::level::err));
  EXPECT_FALSE(log().should_log(spdlog::level::warn));
  EXPECT_EQ(&log(), &log());
}

}  // namespace
}  // namespace tutti
