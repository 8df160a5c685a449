// RDMA: the choice of a GID, devices, and registered memory. Needs a device; `make test-rdma` runs
// this where there are two.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "tests/support/clean_environment.h"
#include "tests/transport/verbs_fixture.h"
#include "transport/verbs/gid.h"

namespace tutti {
namespace {

using namespace test;

// --- Without a device ----------------------------------------------------------------------------

VerbsGid gid(int index, VerbsGid::Type type, std::array<std::uint8_t, 4> head, bool ipv4 = false) {
  VerbsGid g;
  g.index = index;
  g.type = type;
  if (ipv4) {
    g.bytes[10] = g.bytes[11] = 0xff;
    std::ranges::copy(head, g.bytes.begin() + 12);
  } else {
    std::ranges::copy(head, g.bytes.begin());
    g.bytes[15] = 1;
  }
  return g;
}

TEST(VerbsGid, RoceV2OverIpv4IsBest) {
  using enum VerbsGid::Type;
  std::vector<VerbsGid> table{
      gid(0, roce_v1, {10, 0, 0, 1}, true), gid(1, roce_v2, {0xfe, 0x80, 0, 0}),
      gid(2, roce_v1, {0xfd, 0, 0, 1}),     gid(3, roce_v2, {0xfd, 0, 0, 1}),
      gid(5, roce_v2, {10, 0, 0, 1}, true), gid(7, roce_v2, {10, 0, 0, 2}, true)};
  for (const int best : {5, 7, 3, 1, 0, 2}) {
    const VerbsGid* const chosen = choose_gid(table, -1);
    ASSERT_NE(chosen, nullptr);
    EXPECT_EQ(chosen->index, best);
    std::erase_if(table, [&](const VerbsGid& g) { return g.index == best; });
  }
  EXPECT_EQ(choose_gid(table, -1), nullptr);
}

TEST(VerbsGid, OneCanBeAskedFor) {
  using enum VerbsGid::Type;
  const std::vector<VerbsGid> table{gid(0, roce_v2, {10, 0, 0, 1}, true),
                                    gid(3, roce_v1, {10, 0, 0, 1}, true)};
  EXPECT_EQ(choose_gid(table, 3)->index, 3);
  EXPECT_EQ(choose_gid(table, 1), nullptr);
  EXPECT_EQ(gid_text(table[0].bytes), "::ffff:10.0.0.1");
}

// --- Devices and memory --------------------------------------------------------------------------

TEST_F(Verbs, APortSaysWhatItIs) {
  const std::string line = describe(port);
  EXPECT_NE(line.find(port.device + " port 1: "), std::string::npos) << line;
  EXPECT_NE(line.find("MTU " + std::to_string(port.mtu)), std::string::npos) << line;
  EXPECT_GE(port.mtu, 1024);
  EXPECT_GE(port.most_requests, 256u);
  EXPECT_GE(port.most_bytes, std::size_t{1} << 20);
  if (port.ethernet) {
    EXPECT_NE(line.find("RoCE"), std::string::npos) << line;
    EXPECT_GE(port.gid_index, 0);
  }
}

TEST_F(Verbs, DevicesAreChosenByName) {
  const std::vector<VerbsPort> all = verbs_ports();
  for (const VerbsPort& one : all) {
    const Environment environment(Variables{{"TUTTI_VERBS_DEVICES", one.device}});
    for (const VerbsPort& p : verbs_ports()) EXPECT_EQ(p.device, one.device);
  }
  const Environment environment(Variables{{"TUTTI_VERBS_DEVICES", port.device + ",none_such"}});
  try {
    verbs_ports();
    FAIL() << "a device that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("none_such"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(port.device), std::string::npos) << error.what();
  }
}

TEST_F(Verbs, AGidThatIsNotThereIsAnObjection) {
  const Environment environment(Variables{{"TUTTI_VERBS_GID_INDEX", "255"}});
  const auto ports = verbs_ports();
  ASSERT_FALSE(ports.empty());
  EXPECT_NE(ports[0].objection.find("TUTTI_VERBS_GID_INDEX"), std::string::npos);
  EXPECT_THROW(VerbsDevice::open(ports[0]), Error);
}

TEST_F(Verbs, MemoryThatMayNotBeLockedSaysWhatToDo) {
  if (getuid() != 0) GTEST_SKIP() << "only root can become another user";
  Child child([&](int) {
    const rlimit limit{65536, 65536};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
      return 3;
    std::vector<std::byte> memory(1 << 20);
    const auto device = VerbsDevice::open(port);
    try {
      const VerbsMemory region(device, memory.data(), memory.size());
      return 4;
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("ulimit -l") == std::string::npos) return 5;
      return text.find("1048576 bytes") != std::string::npos ? 0 : 6;
    }
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(Verbs, DmaBufsAreRegisteredWhereTheDeviceCan) {
  const auto device = VerbsDevice::open(port);
  const bool can = can_register_dmabuf(*device);
  // No such dma-buf, either way.
  EXPECT_THROW(VerbsMemory(device, -1, 0, 0, 4096), Error);
  RecordProperty("dmabuf", can);
}

TEST_F(Verbs, AChildOfAProcessWithADeviceCanExit) {
  const auto device = VerbsDevice::open(port);
  auto end = std::make_unique<End>(over(device, 1));
  Child child([&](int) {
    end.reset();
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  // It has left the parent's alone.
  End other(over(device, 0));
  end->wire.connect(other.wire.address());
  other.wire.connect(end->wire.address());
  end->wire.start();
  other.wire.start();
}

TEST_F(Verbs, WindowsAreRegisteredOnceAndUntilTheyAreFreed) {
  VerbsWindows windows(VerbsDevice::open(port));
  constexpr std::size_t kBytes = 100'000;
  auto* const memory = static_cast<std::byte*>(allocate(kBytes));
  const auto whole = windows.region(memory, kBytes), part = windows.region(memory + 999, 1);
  ASSERT_TRUE(whole && part);
  EXPECT_EQ(whole->local_key(), part->local_key());
  EXPECT_EQ(whole->remote_key(), part->remote_key());
  EXPECT_EQ(windows.count(), 1u);
  std::vector<std::byte> other(kBytes);
  EXPECT_FALSE(windows.region(other.data(), kBytes)) << "in no window";
  EXPECT_FALSE(windows.region(memory + 999, 2 * kBytes)) << "longer than the window";
  deallocate(memory);
  EXPECT_EQ(windows.count(), 0u);
  // Memory that comes to lie at the same address is another window.
  auto* const again = static_cast<std::byte*>(allocate(kBytes));
  EXPECT_EQ(windows.count(), 0u);
  EXPECT_TRUE(windows.region(again, kBytes));
  EXPECT_EQ(windows.count(), 1u);
  deallocate(again);
}

}  // namespace
}  // namespace tutti
