// `tutti doctor`: it marks what the user asks for and cannot work, and the exit status says so; and
// the way from one host to another. Both hosts are network namespaces.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>

#include "core/error.h"
#include "tests/support/contains.h"
#include "tests/support/processes.h"
#include "tests/tools/tutti_command.h"
#include "tests/transport/network_job.h"
#include "tools/namespaces.h"
#include "transport/network/wire_choice.h"

namespace tutti {
namespace {

class Doctor : public TuttiCommand {
 protected:
  /// What `tutti doctor` says with these variables set; its exit status.
  int doctor(const std::string& variables, const std::string& prefix = "") {
    const std::string command = fmt::format("cd '{}' && env {} {} '{}' doctor >stdout 2>stderr",
                                            folder.path(), variables, prefix, TUTTI_COMMAND);
    const int status = std::system(command.c_str());
    out = folder.read("stdout");
    err = folder.read("stderr");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void expect_marked(const std::string& variables, const std::string& what,
                     const std::string& how) {
    EXPECT_EQ(doctor(variables), 1) << variables;
    const std::size_t at = out.find("\n! " + what + " ");
    ASSERT_NE(at, std::string::npos) << variables << ":\n" << out;
    const std::string rest = out.substr(at + 1, out.find("\n  ", at + 3) - at);
    EXPECT_NE(rest.find(how), std::string::npos) << variables << ":\n" << out;
  }
};

TEST_F(Doctor, MarksAnAddressAtWhichNobodyCanMeet) {
  expect_marked("TUTTI_ADDRESS=0.0.0.0", "TUTTI_ADDRESS", "no host's address");
  expect_marked("TUTTI_ADDRESS=node1", "TUTTI_ADDRESS", "neither an IPv4 nor an IPv6 address");
  expect_marked("TUTTI_ADDRESS=192.0.2.77", "TUTTI_ADDRESS", "cannot listen at 192.0.2.77");
}

TEST_F(Doctor, MarksAPythonPackageOfAnotherRelease) {
  const std::string info = folder.path() + "/tutti-9.9.9.dist-info";
  std::filesystem::create_directory(info);
  folder.write("tutti-9.9.9.dist-info/METADATA",
               "Metadata-Version: 2.1\nName: tutti\nVersion: 9.9.9\n");
  expect_marked("PYTHONPATH=" + folder.path(), "Python package", "9.9.9");
  EXPECT_CONTAINS(out, "install both from one release");
}

TEST_F(Doctor, SaysThatThereIsNoPythonPackage) {
  folder.write("python3", "#!/bin/sh\nprintf 'Python 3.99.0\\nnumpy\\t1.2\\t/place\\n'\n");
  std::filesystem::permissions(folder.path() + "/python3", std::filesystem::perms::owner_all);
  doctor("PATH=" + folder.path() + ":$PATH");
  EXPECT_CONTAINS(out,
                  "\n  Python package         none of Tutti: `python3 -m pip install FILE.whl`\n");
  EXPECT_CONTAINS(out, "\n  Python                 Python 3.99.0, numpy 1.2\n");
}

TEST_F(Doctor, MarksATransportThatIsNotThere) {
  if (verbs_state().ports.empty()) {
    expect_marked("TUTTI_TRANSPORT=verbs", "would be used", "TUTTI_TRANSPORT=verbs asks for it");
  }
  expect_marked("TUTTI_TRANSPORT=plugin NCCL_NET_PLUGIN=none", "would be used",
                "no network plugin is to be used");
  expect_marked("TUTTI_TRANSPORT=tpc", "TUTTI_TRANSPORT",
                "TUTTI_TRANSPORT=tpc: it can be verbs, plugin, ucx, tcp");
}

TEST_F(Doctor, MarksSettingsThatAreWrong) {
  expect_marked("TUTTI_TCP_CONGESTION=bogus", "congestion control", "the kernel of this host has");
  expect_marked("TUTTI_PORTS=2-1", "TUTTI_PORTS", "expected a range");
  expect_marked("TUTTI_SLOTS=many", "a value", "TUTTI_SLOTS is \"many\"");
  expect_marked("TUTTI_ALGORITHM=foo", "a value", "Options::algorithm is \"foo\"");
  expect_marked("TUTTI_LOG=loud", "TUTTI_LOG", "is no level");
  expect_marked("TUTTI_TOPO_FILE=/nowhere.xml", "TUTTI_TOPO_FILE", "/nowhere.xml");
  expect_marked("TUTTI_TRANSPROT=tcp", "TUTTI_TRANSPROT", "is no setting of Tutti");
  EXPECT_CONTAINS(out, "is TUTTI_TRANSPORT meant?");
  expect_marked("TUTTI_ID_FILE=/nowhere/id", "on several hosts", "there is no folder /nowhere");
}

TEST_F(Doctor, SaysHowRanksMeetAndWhatUcxDoes) {
  doctor("");
  EXPECT_CONTAINS(out, "\nBetween hosts: UCX\n");
  EXPECT_CONTAINS(out, "must let the job's other hosts connect to TCP ports");
  for (const char* const way : {"TUTTI_ID_FILE", "make_unique_id", "TUTTI_UNIQUE_ID"}) {
    EXPECT_CONTAINS(out, way);
  }
  const UcxState ucx = ucx_state();
  EXPECT_CONTAINS(out, ucx.version.empty() ? ucx.why_not : ucx.version);
#ifdef TUTTI_TEST_UCX
  expect_marked("TUTTI_TRANSPORT=ucx TUTTI_UCX_TLS=nonsense", "would be used",
                "TUTTI_TRANSPORT=ucx asks for it");
#endif
}

TEST_F(Doctor, SaysWhichWayTheLauncherOffers) {
  doctor("PMI_RANK=1 PMI_SIZE=4 PMI_FD=5");
  EXPECT_CONTAINS(out, "by PMI (PMI_FD=5)");
  doctor(
      "RANK=1 WORLD_SIZE=4 MASTER_ADDR=node1 MASTER_PORT=29400 TORCHELASTIC_USE_AGENT_STORE=True");
  EXPECT_CONTAINS(out, "by torchrun's store at node1:29400");
  const std::string open_mpi = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=1 ";
  doctor(open_mpi + "PMIX_NAMESPACE=7");
  EXPECT_CONTAINS(out, "by PMIx (PMIX_NAMESPACE=7)");
  doctor(open_mpi + "PMIX_NAMESPACE=7 TUTTI_ID_FILE=/tmp/id");
  EXPECT_CONTAINS(out, "by a file, /tmp/id (TUTTI_ID_FILE)");
  // The variables of the job step around this one say nothing.
  doctor(
      "SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_ID=2 SLURM_JOB_ID=9 PMIX_RANK=1 "
      "PMIX_NAMESPACE=slurm.pmix.9.1");
  EXPECT_CONTAINS(out, "now there is none");
}

TEST_F(Doctor, SaysWhatAContainerLimits) {
  doctor("");
  EXPECT_CONTAINS(out, "\nContainer, and what it limits (docs/containers.md)\n");
  for (const char* const what :
       {"container", "processor time", "memory", "/dev/shm", "system calls", "user namespace",
        "copies by the kernel", "locked (ulimit -l)"}) {
    EXPECT_CONTAINS(out, std::string(" ") + what + " ");
  }
}

TEST_F(Doctor, MarksAnInterfaceWithoutACarrier) {
  const Namespaces hosts(1);
  if (!hosts.missing().empty()) GTEST_SKIP() << hosts.missing();
  const std::string inside = "ip netns exec " + hosts.space(0);
  doctor("", inside);
  EXPECT_EQ(out.find("no carrier"), std::string::npos) << out;
  hosts.link(0, false);
  EXPECT_TRUE(eventually([&] {
    return doctor("", inside) == 1 && out.find("(eth0), which has no carrier") != std::string::npos;
  })) << out;
}

// --- the way to another host ---

class DoctorsWay : public TuttiCommand {
 protected:
  struct Said {
    int status = -1;
    std::string text;
  };
  Said run(int host, const std::string& variables, const std::string& arguments) const {
    const std::string command = fmt::format("ip netns exec {} env {} {} doctor {} 2>&1",
                                            hosts.space(host), variables, TUTTI_COMMAND, arguments);
    Said said;
    FILE* const pipe = popen(command.c_str(), "r");
    char piece[4096];
    while (fgets(piece, sizeof piece, pipe) != nullptr) said.text += piece;
    const int status = pclose(pipe);
    said.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return said;
  }
  std::future<Said> listen(int host, const std::string& variables) const {
    auto said = std::async(std::launch::async,
                           [=, this] { return run(host, variables, "--listen --wait 20"); });
    EXPECT_TRUE(eventually([&] {
      return std::system(fmt::format("ip netns exec {} cat /proc/net/tcp | grep -q ' 0A '",
                                     hosts.space(host))
                             .c_str()) == 0;
    }));
    return said;
  }
  /// A firewall: host `host` drops what comes to this port.
  bool drop(int host, int port) const {
    return std::system(fmt::format("(ip -n {0} rule add pref 1 lookup local && "
                                   "ip -n {0} rule del pref 0 && ip -n {0} rule add pref 0 ipproto "
                                   "tcp dport {1} blackhole) 2>/dev/null",
                                   hosts.space(host), port)
                           .c_str()) == 0;
  }

  const Namespaces hosts{2};
};

TEST_F(DoctorsWay, IsGoodInBothDirections) {
  NEED_HOSTS(hosts);
  auto other = listen(1, "TUTTI_PORTS=20000-20009");
  const Said here = run(0, "TUTTI_PORTS=20000-20009", "--to " + hosts.address(1));
  EXPECT_EQ(here.status, 0) << here.text;
  EXPECT_CONTAINS(here.text, "The way to 10.99.0.2:20000");
  EXPECT_CONTAINS(here.text, "from                   10.99.0.1 (eth0)");
  EXPECT_CONTAINS(here.text, "from it                connected to 10.99.0.1:2000");
  EXPECT_CONTAINS(here.text, "TCP ports 20000-20009 (TUTTI_PORTS)");
  const Said there = other.get();
  EXPECT_EQ(there.status, 0) << there.text;
  EXPECT_CONTAINS(there.text, "tutti doctor --to 10.99.0.2:20000");
  EXPECT_CONTAINS(there.text, "The way to 10.99.0.1\n");
  EXPECT_CONTAINS(there.text, "to it                  connected to 10.99.0.1:2000");
}

TEST_F(DoctorsWay, WhereNobodyListensIsMarked) {
  NEED_HOSTS(hosts);
  const Said here = run(0, "", "--to 10.99.0.2:20000");
  EXPECT_EQ(here.status, 1) << here.text;
  EXPECT_CONTAINS(here.text, "! to it                  Connection refused");
  EXPECT_CONTAINS(here.text, "`tutti doctor --listen` has to run there");
}

TEST_F(DoctorsWay, AFirewallOfTheCallerIsNamedByBoth) {
  NEED_HOSTS(hosts);
  if (!drop(0, 20005)) GTEST_SKIP() << "routes cannot drop packets here";
  auto other = listen(1, "TUTTI_PORTS=20000");
  const Said here = run(0, "TUTTI_PORTS=20005", "--to 10.99.0.2:20000");
  EXPECT_EQ(here.status, 1) << here.text;
  EXPECT_CONTAINS(here.text, "  to it                  connected in");
  EXPECT_CONTAINS(here.text, "! from it                no connection to 10.99.0.1:20005");
  EXPECT_CONTAINS(here.text, "it must let 10.99.0.2 connect to TCP ports 20005-20005");
  const Said there = other.get();
  EXPECT_EQ(there.status, 1) << there.text;
  EXPECT_CONTAINS(there.text, "! to it                  no connection to 10.99.0.1:20005");
}

TEST_F(DoctorsWay, AFirewallOfTheOtherHostIsNamed) {
  NEED_HOSTS(hosts);
  if (!drop(1, 20000)) GTEST_SKIP() << "routes cannot drop packets here";
  const Said here = run(0, "", "--to 10.99.0.2:20000");
  EXPECT_EQ(here.status, 1) << here.text;
  EXPECT_CONTAINS(here.text, "! to it                  Connection timed out");
  EXPECT_CONTAINS(here.text, "a firewall drops what comes");
}

TEST_F(DoctorsWay, LostPacketsAreCounted) {
  NEED_HOSTS(hosts);
  // What comes faster than this link is lost.
  const std::string narrow = fmt::format(
      "ip netns exec {} tc qdisc add dev eth0 root tbf rate 100mbit burst 8kb limit 20kb "
      "2>/dev/null",
      hosts.space(0));
  if (std::system(narrow.c_str()) != 0) GTEST_SKIP() << "no link here can be narrow";
  auto other = listen(1, "TUTTI_PORTS=20000-20009");
  const Said here = run(0, "TUTTI_PORTS=20000-20009", "--to " + hosts.address(1));
  EXPECT_EQ(here.status, 1) << here.text;
  EXPECT_CONTAINS(here.text, "! sent again");
  EXPECT_CONTAINS(here.text, "the network loses packets");
  const Said there = other.get();
  EXPECT_EQ(there.status, 0) << there.text;  // whose packets all arrive
}

TEST_F(DoctorsWay, AnotherProgramsPortIsNotTakenForADoctor) {
  NEED_HOSTS(hosts);
  // A listener that says nothing: `tutti run`'s ranks would not either.
  auto silent = std::async(std::launch::async, [&] {
    return std::system(fmt::format("ip netns exec {} timeout 4 python3 -c 'import socket,time; "
                                   "s=socket.create_server((\"10.99.0.2\",20000)); "
                                   "c=s.accept(); c[0].sendall(b\"x\"*64); time.sleep(3)' "
                                   "2>/dev/null",
                                   hosts.space(1))
                           .c_str());
  });
  ASSERT_TRUE(eventually([&] {
    return std::system(
               fmt::format("ip netns exec {} cat /proc/net/tcp | grep -q ' 0A '", hosts.space(1))
                   .c_str()) == 0;
  }));
  const Said here = run(0, "", "--to 10.99.0.2:20000");
  EXPECT_EQ(here.status, 1) << here.text;
  EXPECT_CONTAINS(here.text, "what answers is not `tutti doctor`");
}

TEST_F(DoctorsWay, WrongArgumentsAreRefused) {
  EXPECT_EQ(tutti("doctor --to ''"), 2);
  EXPECT_EQ(tutti("doctor --to 127.0.0.1:99999"), 2);
  EXPECT_EQ(tutti("doctor --to 127.0.0.1:"), 1);  // nobody listens at the usual port
  EXPECT_EQ(tutti("doctor --listen 70000"), 2);
  EXPECT_EQ(tutti("doctor --to a --listen"), 2);
}

}  // namespace
}  // namespace tutti
