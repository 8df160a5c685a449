// Which further ways there are between two hosts, by what each says of its addresses.
#include "transport/network/ways.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

FurtherWays says(const std::vector<std::string>& addresses, std::uint32_t prefix = 24,
                 std::uint32_t wanted = 0) {
  FurtherWays ways;
  ways.wanted = wanted;
  std::uint16_t port = 5000;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    ways.addresses[i] = further_address(*parse_address(addresses[i], port++), prefix);
  }
  return ways;
}

/// From the first address of one to that of the other: "10.0.1.1 10.0.1.2:5000".
std::vector<std::string> between(const FurtherWays& mine, const FurtherWays& theirs) {
  std::vector<std::string> texts;
  for (const Way& w : further_ways(mine, *parse_address("10.0.0.1", 0), theirs,
                                   *parse_address("10.0.0.2", 4000))) {
    texts.push_back(host_text(w.from) + " " + to_string(w.to));
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(FurtherWays, ArePairsOfAddressesInTheSameNetwork) {
  EXPECT_EQ(between(says({"10.0.1.1", "10.0.2.1", "10.0.3.1"}),
                    says({"10.0.3.2", "10.0.4.2", "10.0.1.2"})),
            (Texts{"10.0.1.1 10.0.1.2:5002", "10.0.3.1 10.0.3.2:5000"}));
  EXPECT_EQ(between(says({"10.0.1.1"}, 24), says({"10.0.1.2"}, 23)), Texts{});
  EXPECT_EQ(between(says({"10.0.2.1"}, 23), says({"10.0.3.2"}, 23)),
            Texts{"10.0.2.1 10.0.3.2:5000"});
  EXPECT_EQ(between(says({"fd00:1::1"}, 64), says({"fd00:1::2"}, 64)),
            Texts{"fd00:1::1 [fd00:1::2]:5000"});
  EXPECT_EQ(between(says({"fd00:1::1"}, 64), says({"10.0.1.2"}, 64)), Texts{});
  EXPECT_EQ(between(says({}), says({"10.0.1.2"})), Texts{});
}

TEST(FurtherWays, TakeEachAddressOnce) {
  EXPECT_EQ(between(says({"10.0.1.1", "10.0.1.3"}), says({"10.0.1.2"})),
            Texts{"10.0.1.1 10.0.1.2:5000"});
  EXPECT_EQ(between(says({"10.0.1.1", "10.0.1.3"}), says({"10.0.1.2", "10.0.1.4"})),
            (Texts{"10.0.1.1 10.0.1.2:5000", "10.0.1.3 10.0.1.4:5001"}));
}

TEST(FurtherWays, AreNoneToAnAddressThatThisHostHasToo) {
  // As containers' bridges have on all hosts.
  EXPECT_EQ(between(says({"172.17.0.1", "10.0.1.1"}), says({"172.17.0.1", "10.0.1.2"})),
            Texts{"10.0.1.1 10.0.1.2:5001"});
}

TEST(FurtherWays, AreAsManyAsBothWant) {
  const Texts addresses{"10.0.1.1", "10.0.2.1"}, there{"10.0.1.2", "10.0.2.2"};
  const Texts all{"10.0.1.1 10.0.1.2:5000", "10.0.2.1 10.0.2.2:5001"};
  EXPECT_EQ(between(says(addresses, 24, 0), says(there, 24, 1)), Texts{});
  EXPECT_EQ(between(says(addresses, 24, 1), says(there, 24, 8)), Texts{});
  EXPECT_EQ(between(says(addresses, 24, 2), says(there, 24, 0)), Texts{all[0]});
  EXPECT_EQ(between(says(addresses, 24, 8), says(there, 24, 3)), all);
  // Several connections over one way, the first one's included.
  EXPECT_EQ(between(says(addresses, 24, 5), says(there, 24, 0)),
            (Texts{all[0], all[1], "10.0.0.1 10.0.0.2:4000", all[0]}));
  EXPECT_EQ(between(says({}, 24, 3), says({}, 24, 3)),
            (Texts{"10.0.0.1 10.0.0.2:4000", "10.0.0.1 10.0.0.2:4000"}));
}

TEST(FurtherWays, WhatCannotBeAnAddressIsNone) {
  for (const char* nonsense : {"0.0.0.0", "127.0.0.1", "255.255.255.255", "224.0.0.1"}) {
    const auto mine = says({nonsense == std::string("127.0.0.1") ? "127.0.0.2" : "0.0.0.1"}, 1);
    EXPECT_EQ(between(mine, says({nonsense}, 1)), Texts{}) << nonsense;
  }
  FurtherWays wild = says({"10.0.1.2"}, 255);
  wild.wanted = UINT32_MAX;
  EXPECT_EQ(between(says({"10.0.1.1"}, 255), wild).size(), std::size_t{Endpoint::kMostStripes});
}

}  // namespace
}  // namespace tutti
