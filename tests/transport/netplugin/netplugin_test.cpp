// Network plugins of NCCL: which one is loaded, that every version of the interface is spoken, and
// what an error says.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/variable.h"
#include "transport/netplugin/plugin.h"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSoon = std::chrono::seconds(20);

std::string file_of(const std::string& name) {
  return std::string(PLUGINS "/libnccl-net-") + name + ".so";
}

std::string why_not() {
  try {
    NetPlugin::load();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::system);
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(NetPlugin, NoneMeansNone) {
  const Variable plugin("NCCL_NET_PLUGIN", "none");
  EXPECT_EQ(why_not(), "NCCL_NET_PLUGIN=none: no network plugin is to be used");
}

TEST(NetPlugin, AMissingOneIsNamedWithBothFilesThatWereTried) {
  const Variable plugin("NCCL_NET_PLUGIN", "no_such_network");
  const std::string why = why_not();
  EXPECT_TRUE(says(why, "no_such_network: cannot open")) << why;
  EXPECT_TRUE(says(why, "libnccl-net-no_such_network.so: cannot open")) << why;
}

TEST(NetPlugin, ALibraryWithoutTablesIsNone) {
  const Variable plugin("NCCL_NET_PLUGIN", "libm.so.6,/nowhere/libnccl-net-x.so");
  const std::string why = why_not();
  EXPECT_TRUE(says(why, "has none of ncclNetPlugin_v8 to v12")) << why;
  EXPECT_TRUE(says(why, "/nowhere/libnccl-net-x.so")) << why;
}

TEST(NetPlugin, TheNewestTableCountsAndTheFirstThatCanBeUsed) {
  const Variable plugin("NCCL_NET_PLUGIN", "no_such_network," + file_of("tutti_sockets"));
  const auto loaded = NetPlugin::load();
  EXPECT_EQ(loaded->version(), 12);
  EXPECT_EQ(loaded->name(), "Test sockets");
  EXPECT_EQ(loaded->description(), "Test sockets (v12, " + file_of("tutti_sockets") + ")");
}

TEST(NetPlugin, OneThatFailsToBeginSaysWhatItSaid) {
  const Variable plugin("NCCL_NET_PLUGIN", file_of("tutti_sockets_v12"));
  const Variable fail("TUTTI_TEST_PLUGIN_FAIL", "init");
  const std::string why = why_not();
  EXPECT_TRUE(
      says(why, "the network plugin Test sockets (v12, " + file_of("tutti_sockets_v12") +
                    ") failed in init(): system error (2); its last warning was: there is no "
                    "loopback today"))
      << why;
}

/// Two ends of a connection, and a direction.
class NetPluginOfVersion : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    plugin_ = std::make_unique<Variable>("NCCL_NET_PLUGIN",
                                         file_of("tutti_sockets_v" + std::to_string(GetParam())));
    net_ = NetPlugin::load();
    ASSERT_EQ(net_->version(), GetParam());
  }
  void connect() {
    NetPlugin::Handle handle{};
    void* const listener = net_->listen(1, handle);
    for (const auto end = Clock::now() + kSoon; !sender_ || !receiver_;) {
      ASSERT_LT(Clock::now(), end);
      if (!sender_) sender_ = net_->connect(1, handle);
      if (!receiver_) receiver_ = net_->accept(listener);
    }
    net_->close_listener(listener);
  }
  void close() {
    net_->close_sender(sender_);
    net_->close_receiver(receiver_);
  }

  std::unique_ptr<Variable> plugin_;
  std::unique_ptr<NetPlugin> net_;
  void *sender_ = nullptr, *receiver_ = nullptr;
};

TEST_P(NetPluginOfVersion, KnowsTheDevices) {
  ASSERT_EQ(net_->devices().size(), 2U);
  const NetPlugin::Device& device = net_->devices()[1];
  EXPECT_EQ(device.name, "sockets1");
  EXPECT_TRUE(device.takes_host_memory);
  EXPECT_EQ(device.most_bytes, std::size_t{1} << 30);
}

TEST_P(NetPluginOfVersion, CarriesMessagesInOrderAndSaysTheirLengths) {
  connect();
  constexpr std::size_t kMessages = 40, kRoom = 100000;
  std::vector<std::vector<std::byte>> out(kMessages), in(kMessages, std::vector<std::byte>(kRoom));
  std::vector<void*> out_memory, in_memory;
  for (std::size_t m = 0; m < kMessages; ++m) {
    out[m].resize(1 + m * m * 61);
    for (std::size_t i = 0; i < out[m].size(); ++i) out[m][i] = std::byte((m * 31 + i * 7) & 255);
    out_memory.push_back(net_->register_memory(sender_, out[m].data(), out[m].size()));
    in_memory.push_back(net_->register_memory(receiver_, in[m].data(), kRoom));
  }
  std::deque<void*> sends, receives;
  std::size_t sent = 0, posted = 0, received = 0;
  for (const auto end = Clock::now() + kSoon; received < kMessages || !sends.empty();) {
    ASSERT_LT(Clock::now(), end);
    if (sent < kMessages && sends.size() < 8) {
      if (void* r = net_->send(sender_, out[sent].data(), out[sent].size(), out_memory[sent])) {
        sends.push_back(r);
        ++sent;
      }
    }
    if (posted < kMessages && receives.size() < 8) {
      if (void* r = net_->receive(receiver_, in[posted].data(), kRoom, in_memory[posted])) {
        receives.push_back(r);
        ++posted;
      }
    }
    if (!sends.empty() && net_->test(sends.front()).done) sends.pop_front();
    if (receives.empty()) continue;
    const NetPlugin::Done done = net_->test(receives.front());
    if (!done.done) continue;
    receives.pop_front();
    ASSERT_EQ(done.bytes, out[received].size()) << received;
    in[received].resize(done.bytes);
    ASSERT_EQ(in[received], out[received]) << received;
    ++received;
  }
  for (std::size_t m = 0; m < kMessages; ++m) {
    net_->deregister(sender_, out_memory[m]);
    net_->deregister(receiver_, in_memory[m]);
  }
  close();
}

TEST_P(NetPluginOfVersion, AnErrorNamesTheFunction) {
  connect();
  std::array<std::byte, 64> memory{};
  try {
    net_->send(sender_, memory.data(), memory.size(), nullptr);
    ADD_FAILURE() << "memory without a registration was taken";
  } catch (const Error& error) {
    EXPECT_TRUE(says(error.what(), "failed in isend(): internal error (3)")) << error.what();
    EXPECT_TRUE(says(error.what(), "its last warning was: 64 bytes at")) << error.what();
  }
  close();
}

INSTANTIATE_TEST_SUITE_P(Versions, NetPluginOfVersion, testing::Range(8, 13));

}  // namespace
}  // namespace tutti::test
