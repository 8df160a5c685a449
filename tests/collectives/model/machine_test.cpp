// The constants of a machine: text, file, and what happens when the file is not usable.
#include "collectives/model/machine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "collectives/model/machine_file.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

class MachineFile : public testing::Test {
 protected:
  MachineFile() {
    unsetenv("TUTTI_MACHINE");
    setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  }
  ~MachineFile() override {
    unsetenv("TUTTI_MACHINE");
    unsetenv("XDG_CACHE_HOME");
  }

  const TemporaryFolder folder;
};

/// Every constant has a value of its own.
Machine distinct() {
  Machine m;
  double value = 1.0 / 3;
  for (const MachineConstant& c : machine_constants()) m.*c.value = value *= 1.7;
  return m;
}

std::string refusal(const std::string& text) {
  try {
    machine_from_text(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "accepted";
}

TEST(Machine, DefaultsAreValid) {
  const Machine m = default_machine();
  EXPECT_TRUE(is_valid(m));
  for (const MachineConstant& c : machine_constants()) EXPECT_GT(m.*c.value, 0) << c.name;
  EXPECT_FALSE(is_valid(Machine{}));
  Machine broken = m;
  broken.l3_read = std::nan("");
  EXPECT_FALSE(is_valid(broken));
  broken.l3_read = -1;
  EXPECT_FALSE(is_valid(broken));
}

TEST(Machine, TextIsReadBackExactly) {
  const MachineRecord record{distinct(), "a processor, 3 cores", "2026-01-31 12:00"};
  const MachineRecord back = machine_from_text(machine_to_text(record));
  EXPECT_EQ(back.machine, record.machine);
  EXPECT_EQ(back.name, record.name);
  EXPECT_EQ(back.date, record.date);
}

// No single machine can measure them, and older files do not have them.
TEST(Machine, ConstantsOfTheNetworkMayBeLeftOut) {
  std::string text = machine_to_text({distinct(), "this", "today"});
  for (std::size_t at; (at = text.find("\nnet_")) != std::string::npos;) {
    text.erase(at, text.find('\n', at + 1) - at);
  }
  const Machine m = machine_from_text(text).machine;
  EXPECT_EQ(m.net_wire, default_machine().net_wire);
  EXPECT_EQ(m.net_latency_ns, default_machine().net_latency_ns);
  EXPECT_EQ(m.far_data, distinct().far_data);
}

TEST(Machine, GarbageIsRefusedWithTheLine) {
  const std::string good = machine_to_text({distinct(), "this", "today"});
  EXPECT_NE(refusal("").find("version is missing"), std::string::npos);
  EXPECT_NE(refusal(std::string(1 << 20, 'x')).find("too long"), std::string::npos);
  EXPECT_NE(refusal("{\"step_ns\": 3}\n").find("line 1: expected NAME = VALUE"), std::string::npos);
  EXPECT_NE(refusal(std::string("\0\xff\0=\0", 5)).find("line 1"), std::string::npos);
  EXPECT_NE(refusal(good + "step_ns = 3\n").find("step_ns is there twice"), std::string::npos);
  EXPECT_NE(refusal(good + "warp_ns = 3\n").find("no constant 'warp_ns'"), std::string::npos);
  for (const char* value : {"nan", "inf", "-1", "1e300", "", "3x", "0x10"}) {
    std::string bad = good;
    const std::size_t at = bad.find("step_ns = ");
    bad.replace(at, bad.find('\n', at) - at, fmt::format("step_ns = {}", value));
    EXPECT_NE(refusal(bad).find("expected a number"), std::string::npos) << value;
  }
  std::string other = good;
  other.replace(other.find("version = 2"), 11, "version = 1");
  EXPECT_NE(refusal(other).find("another version"), std::string::npos);
  // Wherever the text is cut off, something is missing; half a number may still be one.
  for (std::size_t length = 0; length + 200 < good.size(); length += 7) {
    EXPECT_NE(refusal(good.substr(0, length)), "accepted") << length;
  }
}

TEST_F(MachineFile, IsWrittenWhereItIsLookedFor) {
  EXPECT_EQ(used_machine().machine, default_machine());
  EXPECT_EQ(used_machine().origin.rfind("defaults: ", 0), 0u);
  const std::string where = machine_path();
  EXPECT_EQ(where.rfind(folder.path("tutti/machine-"), 0), 0u) << where;
  write_machine(where, {distinct(), machine_name(), "2026-01-31 12:00"});
  EXPECT_EQ(used_machine().machine, distinct());
  EXPECT_EQ(used_machine().origin.rfind("calibrated on 2026-01-31 12:00", 0), 0u);
  // Nothing else is left beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path("tutti")), {}), 1);
}

TEST_F(MachineFile, OfAnotherMachineCountsOnlyWhereItIsNamed) {
  write_machine(machine_path(), {distinct(), "another machine", "today"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(used_machine().machine, default_machine());
  EXPECT_EQ(used_machine().machine, default_machine());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("is about another machine"), std::string::npos) << log;
  EXPECT_EQ(log.find("is about another machine"), log.rfind("is about another machine"))
      << "one warning is enough:\n"
      << log;
  setenv("TUTTI_MACHINE", machine_path().c_str(), 1);
  EXPECT_EQ(used_machine().machine, distinct());
}

// The home folder of another user, as in a container that runs as somebody else.
TEST_F(MachineFile, InAFolderThatCannotBeSearchedLeavesTheDefaults) {
  std::filesystem::create_symlink(folder.path("loop"), folder.path("loop"));
  for (const std::string& cache : {folder.path("loop"), folder.path(std::string(300, 'x'))}) {
    setenv("XDG_CACHE_HOME", cache.c_str(), 1);
    EXPECT_EQ(used_machine().machine, default_machine());
    EXPECT_EQ(used_machine().origin.rfind("defaults: cannot read ", 0), 0U)
        << used_machine().origin;
  }
}

TEST_F(MachineFile, ThatCannotBeUsedLeavesTheDefaults) {
  const std::string here = machine_path();
  std::filesystem::create_directory(folder.path("tutti"));
  std::ofstream(here) << "garbage";
  EXPECT_EQ(used_machine().machine, default_machine());
  EXPECT_NE(used_machine().origin.find("line 1"), std::string::npos) << used_machine().origin;
  for (const std::string& bad :
       {folder.path("missing"), folder.path(""), std::string("/dev/zero")}) {
    setenv("TUTTI_MACHINE", bad.c_str(), 1);
    EXPECT_EQ(used_machine().machine, default_machine()) << bad;
  }
  EXPECT_THROW(read_machine(folder.path("missing")), Error);
  EXPECT_THROW(write_machine("/proc/tutti/machine.txt", {distinct(), "", ""}), Error);
}

}  // namespace
}  // namespace tutti
