// `tutti check` between hosts, which are network namespaces: ranks meet over TCP as on two
// machines.
#include <fmt/format.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/tools/tutti_command.h"
#include "tests/transport/network_job.h"
#include "tools/namespaces.h"

namespace tutti {
namespace {

class CheckHosts : public TuttiCommand {
 protected:
  CheckHosts() {
    folder.write("launcher", "#!/bin/sh\nhost=$1; shift\nexec ip netns exec $host \"$@\"\n");
    chmod(folder.path("launcher").c_str(), 0755);
  }
  /// On the first host, with `ranks` ranks of each.
  int check(int ranks, const std::string& options) {
    return shell(fmt::format("ip netns exec {0} '" TUTTI_COMMAND
                             "' check -H {0}:{2},{1}:{2} --launcher ./launcher --timeout 60 {3} "
                             ">stdout 2>stderr",
                             hosts.space(0), hosts.space(1), ranks, options));
  }

  const Namespaces hosts{2};
};

TEST_F(CheckHosts, AreMeasuredTogether) {
  NEED_HOSTS(hosts);
  // How busy the machine of a test is nobody knows.
  ASSERT_EQ(check(2, "--json -b 64K -e 256K --iterations 5 --band 10000"), 0) << out << err;
  const auto j = nlohmann::json::parse(out);
  EXPECT_EQ(j["verdict"], "fine");
  EXPECT_EQ(j["hosts"], 2);
  EXPECT_EQ(j["ranks"], 4);
  ASSERT_EQ(j["sizes"].size(), 3U);
  for (const auto& size : j["sizes"]) EXPECT_GT(size["expected_us"], 0);
}

TEST_F(CheckHosts, ThatANarrowLinkJoinsAreSlow) {
  NEED_HOSTS(hosts);
  // 20 Mbit/s: 2 MiB take 0.8 s.
  ASSERT_TRUE(hosts.limit(0, 20) && hosts.limit(1, 20));
  ASSERT_EQ(check(1, "--json -b 1M -e 2M --iterations 1 --band 8"), 1) << out << err;
  const auto j = nlohmann::json::parse(out);
  EXPECT_EQ(j["verdict"], "slow");
  EXPECT_EQ(j["hosts"], 2);
  for (const auto& size : j["sizes"]) EXPECT_GT(size["times"], 8) << size;
}

}  // namespace
}  // namespace tutti
