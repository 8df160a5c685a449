// Sends and receives on GPU memory, with threads in the GPU's place: what arrives, however the two
// ends grouped their calls and however few thread blocks they have; what is refused and found.
#include "execute/cuda/device_messages.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/team.h"
#include "tests/device/device_memory.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

Call send_call(const Data& data, int peer) {
  Call call;
  call.collective = Collective::send_recv;
  call.in = data.data();
  call.count = data.size();
  call.type = kType;
  call.peer = peer;
  call.sends = true;
  return call;
}

Call recv_call(Data& data, int peer) {
  Call call;
  call.collective = Collective::send_recv;
  call.out = data.data();
  call.count = data.size();
  call.type = kType;
  call.peer = peer;
  return call;
}

/// What `from` sends to `to` as its `number`-th message.
Data message(int from, int to, int number, std::size_t count) {
  Data data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<std::int32_t>(1'000'000 * (10 * from + to) + 1000 * number +
                                        static_cast<int>(i) * 7);
  }
  return data;
}

class DeviceMessages : public OnDeviceMemory {};

// Around every boundary of LL, LL128 and Simple.
TEST_P(DeviceMessages, EverySizeToTheNextRank) {
  const int n = GetParam();
  auto all = ranks(n);
  in_threads(all, [&](Communicator& c) {
    const int next = (c.rank() + 1) % n;
    const int previous = (c.rank() + n - 1) % n;
    int number = 0;
    for (const std::size_t count :
         {1,    2,     15,    16,    17,    1000,  1023,   1024,    1025,    4096,
          4099, 16383, 16384, 16385, 20000, 50001, 524288, 2097152, 2097153, 2621441}) {
      const Data in = message(c.rank(), next, ++number, count);
      Data out(count);
      group([&] {
        c.run(recv_call(out, previous), stream(c.rank()));
        c.run(send_call(in, next), stream(c.rank()));
      });
      ASSERT_EQ(out, message(previous, c.rank(), number, count)) << count << " of " << n;
    }
  });
}

TEST_P(DeviceMessages, AllToAllIsOneLaunch) {
  const int n = GetParam();
  auto all = ranks(n);
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::map<std::pair<int, int>, Data> in, out;
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) {
        const std::size_t count = 100 + 3000 * static_cast<std::size_t>((a + 2 * b + repeat) % n);
        in[{a, b}] = message(a, b, repeat, count);
        out[{a, b}].resize(count);
      }
    }
    const int before = the_device->launches;
    group([&] {
      for (int a = 0; a < n; ++a) {
        for (int b = 0; b < n; ++b) {
          all[static_cast<std::size_t>(a)].run(send_call(in[{a, b}], b), stream(a));
          all[static_cast<std::size_t>(a)].run(recv_call(out[{b, a}], b), stream(a));
        }
      }
    });
    EXPECT_EQ(the_device->launches, before + 1) << "to oneself as well";
    EXPECT_EQ(in, out);
  }
}

// One end calls one by one, in a group, or in several; both ends have another number of blocks for
// a message. The order of a pair's messages decides, and nothing else.
TEST_P(DeviceMessages, EndsThatGroupDifferently) {
  if (GetParam() != 2) return;
  std::mt19937 random(3);
  for (const std::uint32_t blocks : {256U, 20U, 6U}) {
    the_device->side_by_side = blocks;
    auto all = ranks(2);
    std::vector<std::size_t> counts;
    for (int i = 0; i < 24; ++i) {
      const std::size_t most = i % 3 == 0 ? 3 : i % 3 == 1 ? 30'000 : 900'000;
      counts.push_back(1 + random() % most);
    }
    for (int i = 0; i < 2; ++i) {
      std::vector<std::size_t> ends[2];  // of the groups, for the sender and for the receiver
      for (auto& e : ends) {
        for (std::size_t at = 0; at < counts.size(); e.push_back(at)) {
          at = std::min(counts.size(), at + 1 + random() % 6);
        }
      }
      in_threads(all, [&](Communicator& c) {
        const bool sends = c.rank() == i;
        std::vector<Data> data;
        for (std::size_t m = 0; m < counts.size(); ++m) {
          data.push_back(sends ? message(i, 1 - i, int(m), counts[m]) : Data(counts[m]));
        }
        std::size_t at = 0;
        for (const std::size_t end : ends[sends ? 0 : 1]) {
          group([&] {
            for (; at < end; ++at) {
              c.run(sends ? send_call(data[at], 1 - i) : recv_call(data[at], i), stream(c.rank()));
            }
          });
        }
        for (std::size_t m = 0; m < counts.size() && !sends; ++m) {
          ASSERT_EQ(data[m], message(i, 1 - i, int(m), counts[m])) << m << " of " << counts[m];
        }
      });
    }
  }
}

// The number of the operation, which all ranks count alike, is none of theirs.
TEST_P(DeviceMessages, SomeRanksTalkBetweenCollectives) {
  const int n = GetParam();
  auto all = ranks(n);
  in_threads(all, [&](Communicator& c) {
    const Data in = input_of(c.rank());
    Data out(kCount);
    for (int i = 0; i < 5; ++i) {
      c.run(all_reduce_call(in, out), stream(c.rank()));
      ASSERT_EQ(out, sum_of(n));
      if (n < 2) continue;
      const int from = i % n;
      const int to = (i + 1) % n;
      Data received(kCount);
      if (c.rank() == from) c.run(send_call(in, to), stream(c.rank()));
      if (c.rank() != to) continue;
      c.run(recv_call(received, from), stream(c.rank()));
      ASSERT_EQ(received, input_of(from));
    }
  });
}

TEST_P(DeviceMessages, AGroupOfBothKindsAndTwoStreams) {
  const int n = GetParam();
  auto all = ranks(n);
  std::vector<Data> in, out(all.size(), Data(kCount)), received(all.size(), Data(kCount));
  for (int r = 0; r < n; ++r) in.push_back(input_of(r));
  group([&] {
    for (int r = 0; r < n; ++r) {
      const auto i = static_cast<std::size_t>(r);
      all[i].run(send_call(in[i], (r + 1) % n), stream(r));
      all[i].run(all_reduce_call(in[i], out[i]), stream(r));
      all[i].run(recv_call(received[i], (r + n - 1) % n), stream(100 + r));
    }
  });
  EXPECT_EQ(the_device->launches, 2);
  EXPECT_EQ(the_device->orders, 2 * (n - 1) + 2 * (2 * n - 1));
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(out[static_cast<std::size_t>(r)], sum_of(n));
    EXPECT_EQ(received[static_cast<std::size_t>(r)], input_of((r + n - 1) % n));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceMessages, ::testing::Values(1, 2, 3, 5));

class DeviceMessageFaults : public OnDeviceMemory {};

TEST_F(DeviceMessageFaults, OtherCountsAndTypesAreFound) {
  struct Case {
    std::size_t sent, received;
    DataType type;
    std::string text;
  };
  for (const Case& k :
       {Case{100, 101, kType, "receives int32 x 101 from rank 0, which sent int32 x 100"},
        Case{100, 100, DataType::float32, "receives float32 x 100 from rank 0, which"},
        Case{1 << 20, 100, kType, "which sent int32 x 1048576"},
        Case{100, 1 << 20, kType, "which sent int32 x 100"}}) {
    Options options;
    options.timeout = 1s;
    auto all = ranks(2, options);
    Data sent(k.sent), received(k.received);
    in_threads(all, [&](Communicator& c) {
      Call call = c.rank() == 0 ? send_call(sent, 1) : recv_call(received, 0);
      if (c.rank() == 1) call.type = k.type;
      c.run(call, stream(c.rank()));
    });
    const std::string text = refusal(
        [&] { all[1].run(all_reduce_call(sent, received), stream(1)); }, ErrorCode::mismatch);
    EXPECT_NE(text.find(k.text), std::string::npos) << text;
  }
}

TEST_F(DeviceMessageFaults, ATimeOutNamesThePeer) {
  Options options;
  options.timeout = 100ms;
  auto all = ranks(3, options);
  Data data(100);
  all[0].run(recv_call(data, 2), stream(0));
  const std::string text =
      refusal([&] { all[1].run(recv_call(data, 2), stream(1)); }, ErrorCode::timed_out);
  EXPECT_NE(text.find("rank 0 has waited in a recv"), std::string::npos) << text;
  EXPECT_NE(text.find("for rank 2 to send a message"), std::string::npos) << text;
}

TEST_F(DeviceMessageFaults, WhatIsRefused) {
  auto all = ranks(2);
  Data data(100), out(100);
  Communicator& c = all[0];
  EXPECT_NE(refusal([&] { c.run(send_call(data, 0), stream(0)); }, ErrorCode::invalid_usage)
                .find("outside of a group"),
            std::string::npos);
  EXPECT_NE(refusal([&] { group([&] { c.run(send_call(data, 0), stream(0)); }); },
                    ErrorCode::invalid_usage)
                .find("pair up"),
            std::string::npos);
  refusal([&] { c.run(send_call(data, 2), stream(0)); }, ErrorCode::invalid_argument);
  EXPECT_NE(refusal([&] { c.run(recv_call(data, 1), nullptr); }, ErrorCode::invalid_usage)
                .find("default stream"),
            std::string::npos);
}

// That, too, only fails when the launch is made, which nobody else can know.
TEST_F(DeviceMessageFaults, MorePeersThanThreadBlocks) {
  the_device->side_by_side = 12;  // 4 for each
  auto all = ranks(3);
  std::vector<Data> data(6, Data(10));
  const auto all_to_all = [&] {
    for (int peer = 0; peer < 3; ++peer) {
      all[0].run(send_call(data[static_cast<std::size_t>(peer)], peer), stream(0));
      all[0].run(recv_call(data[static_cast<std::size_t>(3 + peer)], peer), stream(0));
    }
  };
  EXPECT_NE(refusal([&] { group(all_to_all); }, ErrorCode::invalid_argument).find("smaller groups"),
            std::string::npos);
  refusal([&] { all[1].barrier(); }, ErrorCode::invalid_argument);
}

// Blocks are uploaded once for all calls whose buffers lie alike.
TEST(DeviceMessageBlocks, AreKept) {
  HostDevice device;
  device::SegmentShape shape;
  shape.ranks = 2;
  shape.message_channels = 2;
  device::Executor executor(device, 0, shape, 1);
  std::vector<std::byte> memory(4096);
  const auto prepare = [&](std::size_t first, std::size_t second) {
    const device::DeviceMessage messages[] = {{1, true, 7, memory.data() + first, 100},
                                              {1, true, 7, memory.data() + second, 200}};
    const device::RankLaunch launch = executor.prepare(messages, nullptr);
    EXPECT_EQ(launch.in, memory.data() + std::min(first, second));
    return executor.plans();
  };
  EXPECT_EQ(prepare(0, 512), 1U);
  EXPECT_EQ(prepare(1000, 1512), 1U);
  EXPECT_EQ(prepare(512, 0), 2U);
  EXPECT_EQ(prepare(600, 88), 2U);
}

}  // namespace
}  // namespace tutti::test
