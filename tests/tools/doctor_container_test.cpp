// What `tutti doctor` finds out about containers, from folders that look like those of the kernel.
#include "tools/doctor/doctor_container.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

class DoctorContainer : public testing::Test {
 protected:
  void have(const std::map<std::string, std::string>& files) const {
    for (const auto& [path, text] : files) {
      std::filesystem::create_directories(std::filesystem::path(root.path(path)).parent_path());
      root.write(path, text);
    }
  }
  std::optional<double> cores() const { return cores_by_quota(root.path()); }
  std::string kind() const { return container_kind(root.path()); }

  const TemporaryFolder root;
};

TEST_F(DoctorContainer, TheLeastQuotaOnTheWayUpCounts) {
  have({{"proc/self/cgroup", "0::/kubepods/pod7/abc\n"}});
  EXPECT_EQ(cores(), std::nullopt);
  have({{"sys/fs/cgroup/kubepods/pod7/abc/cpu.max", "max 100000\n"}});
  EXPECT_EQ(cores(), std::nullopt);
  have({{"sys/fs/cgroup/kubepods/pod7/cpu.max", "250000 100000\n"}});
  EXPECT_EQ(cores(), 2.5);
  have({{"sys/fs/cgroup/kubepods/pod7/abc/cpu.max", "50000 100000\n"}});
  EXPECT_EQ(cores(), 0.5);
}

TEST_F(DoctorContainer, TheOwnGroupIsTheRootInsideOfAContainer) {
  have({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", "400000 100000\n"}});
  EXPECT_EQ(cores(), 4);
}

TEST_F(DoctorContainer, QuotasOfTheFirstVersionCountToo) {
  have({{"proc/self/cgroup", "9:name=systemd:/x\n4:cpu,cpuacct:/docker/abc\n0::/\n"},
        {"sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n"},
        {"sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(cores(), std::nullopt);
  have({{"sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "150000\n"}});
  EXPECT_EQ(cores(), 1.5);
}

TEST_F(DoctorContainer, DamagedFilesSayNothing) {
  have({{"proc/self/cgroup", "nonsense\n0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "soon\n"}});
  EXPECT_EQ(cores(), std::nullopt);
  have({{"sys/fs/cgroup/a/cpu.max", "100000 0\n"}});
  EXPECT_EQ(cores(), std::nullopt);
}

TEST_F(DoctorContainer, ContainersAreKnownByTheirMarks) {
  have({{"proc/self/cgroup", "0::/user.slice\n"}});
  EXPECT_EQ(kind(), "");
  have({{"run/systemd/container", "systemd-nspawn\n"}});
  EXPECT_EQ(kind(), "(systemd-nspawn)");
  have({{"proc/self/cgroup", "4:memory:/docker/abc\n"}});
  EXPECT_EQ(kind(), "by its control group (docker)");
  have({{"run/.containerenv", ""}});
  EXPECT_EQ(kind(), "of Podman");
  have({{".dockerenv", ""}});
  EXPECT_EQ(kind(), "of Docker");
  have({{"var/run/secrets/kubernetes.io/serviceaccount/token", "x"}});
  EXPECT_EQ(kind(), "of Kubernetes");
}

}  // namespace
}  // namespace tutti
