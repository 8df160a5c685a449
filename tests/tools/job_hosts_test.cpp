// Which hosts a job has and which ranks they get, as users, files and batch systems say it; and
// what agents are told, as bytes.
#include "tools/run/job_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/contains.h"
#include "tests/support/temporary_folder.h"
#include "tools/run/agent_messages.h"

namespace tutti {
namespace {

/// "node1:4 node2:0".
std::string text_of(const std::vector<JobHost>& hosts) {
  std::vector<std::string> words;
  for (const JobHost& host : hosts) words.push_back(fmt::format("{}:{}", host.name, host.slots));
  return fmt::format("{}", fmt::join(words, " "));
}

/// "node1:0+4 node2:4+2": the first rank, and how many.
std::string text_of(const std::vector<HostShare>& shares) {
  std::vector<std::string> words;
  for (std::size_t h = 0; h < shares.size(); ++h) {
    EXPECT_EQ(shares[h].number, static_cast<int>(h));
    words.push_back(fmt::format("{}:{}+{}", shares[h].name, shares[h].first_rank, shares[h].ranks));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string refused_list(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(JobHosts, AListNamesHostsAndRanks) {
  EXPECT_EQ(text_of(hosts_in_list("node1:4,node2:2")), "node1:4 node2:2");
  EXPECT_EQ(text_of(hosts_in_list("node1")), "node1:0");
  EXPECT_EQ(text_of(hosts_in_list("user@a-b.c_d,fd00::1,[fd00::2]:3,10.0.0.1:7")),
            "user@a-b.c_d:0 fd00::1:0 fd00::2:3 10.0.0.1:7");
  // A host that is named again has more.
  EXPECT_EQ(text_of(hosts_in_list("a:2,b:1,a:3")), "a:5 b:1");
  EXPECT_EQ(text_of(hosts_in_list("a,b,a")), "a:2 b:0");
  EXPECT_EQ(text_of(hosts_in_list("localhost:1,b:1,127.0.0.1:2")), "localhost:3 b:1");
}

TEST(JobHosts, WhatNamesNoHostIsRefused) {
  for (const char* const list : {"", ",", "a,", "a,,b", "a:0", "a:-1", "a:x", "a:", ":4", "-oProxy",
                                 "a b", "a;b", "$(a)", "[fd00::1", "[fd00::1]4", "a:1000000"}) {
    EXPECT_NE(refused_list([&] { hosts_in_list(list); }), "") << list;
  }
}

TEST(JobHosts, AFileHasTheNotationsOfOpenMpiAndMpich) {
  const TemporaryFolder folder;
  folder.write("hosts",
               "# the cluster\nnode1 slots=4 max_slots=8\n\nnode2:2   # small\nnode3\n"
               "  node4\tslots=1\nnode3\n");
  EXPECT_EQ(text_of(hosts_in_file(folder.path("hosts"))), "node1:4 node2:2 node3:2 node4:1");
  folder.write("hosts", "# none\n");
  EXPECT_CONTAINS(refused_list([&] { hosts_in_file(folder.path("hosts")); }),
                  "there is no host in ");
  folder.write("hosts", "node1\nnode2 slots=many\n");
  EXPECT_CONTAINS(refused_list([&] { hosts_in_file(folder.path("hosts")); }),
                  "hosts, line 2: 'slots=many': expected slots=NUMBER");
  folder.write("hosts", "node1 4\n");
  EXPECT_CONTAINS(refused_list([&] { hosts_in_file(folder.path("hosts")); }), "line 1: ");
  EXPECT_CONTAINS(refused_list([&] { hosts_in_file(folder.path("none")); }),
                  "cannot read the list of hosts");
  EXPECT_CONTAINS(refused_list([&] { hosts_in_file(folder.path()); }),
                  "cannot read the list of hosts");
}

TEST(JobHosts, AFileThatIsNoListIsRefusedInAFewWords) {
  const TemporaryFolder folder;
  for (const std::string& text :
       {std::string("\x1b[2J\x7f"), std::string("node1\0node2", 11), std::string(1 << 20, 'x')}) {
    folder.write("hosts", text);
    const std::string why = refused_list([&] { hosts_in_file(folder.path("hosts")); });
    EXPECT_CONTAINS(why, "line 1: ");
    EXPECT_LT(why.size(), 300U);
    EXPECT_TRUE(std::ranges::all_of(why, [](unsigned char c) { return std::isprint(c) != 0; }))
        << why;
  }
}

TEST(JobHosts, AHostThatIsNamedTooOftenIsRefused) {
  // More ranks than an int counts.
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "n:100000\n";
  const TemporaryFolder folder;
  folder.write("hosts", text);
  EXPECT_THROW(hosts_in_file(folder.path("hosts")), Error);
}

TEST(JobHosts, SlurmsBracketsHaveANumberEachAndAreAFew) {
  for (const std::string& list : {std::string("n[0-999999998][]"), std::string("n[]"), "n" + [] {
                                    std::string all;
                                    for (int i = 0; i < 100'000; ++i) all += "[1]";
                                    return all;
                                  }()}) {
    EXPECT_THROW(expand_node_list(list), Error);
  }
  EXPECT_EQ(expand_node_list("n[1][2][3][4][5][6][7][8]"), std::vector<std::string>{"n12345678"});
}

TEST(JobHosts, SlurmsBracketsExpand) {
  const auto nodes = [](const char* list) {
    return fmt::format("{}", fmt::join(expand_node_list(list), " "));
  };
  EXPECT_EQ(nodes("node1"), "node1");
  EXPECT_EQ(nodes("node[1-3,07],login"), "node1 node2 node3 node07 login");
  EXPECT_EQ(nodes("n[08-11]"), "n08 n09 n10 n11");
  EXPECT_EQ(nodes("r[1-2]n[1-2]-ib,x"), "r1n1-ib r1n2-ib r2n1-ib r2n2-ib x");
  for (const char* const list : {"n[1-", "n[1", "n[2-1]", "n[a-b]", "n[1-2-3]", "n[-1]", "",
                                 "n[1-999999999]", "n[1-99999]m[1-99999]"}) {
    EXPECT_NE(refused_list([&] { expand_node_list(list); }), "") << list;
  }
}

TEST(JobHosts, ABatchJobsHostsAreFound) {
  const auto with = [](const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    const std::string text = text_of(hosts_of_allocation());
    for (const auto& [name, value] : variables) unsetenv(name.c_str());
    return text;
  };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(with({{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "4(x2),3"}}),
            "n1:4 n2:4 n3:3");
  EXPECT_EQ(with({{"SLURM_JOB_NODELIST", "n[1-2]"}}), "n1:1 n2:1");
  const TemporaryFolder folder;
  folder.write("nodes", "n1\nn1\nn2\nn2\nn2\n");
  EXPECT_EQ(with({{"PBS_NODEFILE", folder.path("nodes")}}), "n1:2 n2:3");
}

TEST(JobHosts, RanksFillHostsInOrder) {
  const auto shares = [](const char* list, int ranks) {
    return text_of(share_ranks(hosts_in_list(list), ranks));
  };
  EXPECT_EQ(shares("a:4,b:2", 0), "a:0+4 b:4+2");
  EXPECT_EQ(shares("a:4,b:2", 5), "a:0+4 b:4+1");
  EXPECT_EQ(shares("a:4,b:2,c:1", 3), "a:0+3");
  EXPECT_EQ(shares("a,b", 0), "a:0+1 b:1+1");
  EXPECT_EQ(shares("a:2,b", 3), "a:0+2 b:2+1");
  // Hosts without numbers get equal shares.
  EXPECT_EQ(shares("a,b,c", 8), "a:0+3 b:3+3 c:6+2");
  EXPECT_EQ(shares("a,b,c", 2), "a:0+1 b:1+1");
  EXPECT_CONTAINS(refused_list([&] { shares("a:4,b:2", 7); }),
                  "-n 7: the hosts have room for 6 ranks");
  EXPECT_CONTAINS(refused_list([&] { shares("a:99999,b:2", 0); }), "more than 100000 ranks");
}

TEST(JobHosts, ThisHostIsKnownByItsNamesAndAddresses) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const std::vector<std::string> own_names{"localhost", "127.0.0.1", "127.1.2.3", "::1",
                                           name.data()};
  for (const std::string& own : own_names) {
    EXPECT_TRUE(is_this_host(own)) << own;
  }
  for (const char* const other : {"10.255.255.254", "fd00:1:2:3::4", "no-such-host"}) {
    EXPECT_FALSE(is_this_host(other)) << other;
  }
}

/// What a resolver knows.
std::vector<SocketAddress> known(const std::map<std::string, std::string>& names,
                                 const std::string& name) {
  const auto found = names.find(name);
  if (found == names.end()) return {};
  return {*parse_address(found->second, 0)};
}

TEST(JobHosts, ANameThatBeginsLikeThisHostsIsAnotherHostsUnlessTheResolverKnowsBetter) {
  std::vector<std::string> asked;
  const Resolver resolver = [&](const std::string& name) {
    asked.push_back(name);
    return known({{"node1.rack-a", "127.0.1.1"}, {"node1.rack-b", "192.0.2.77"}}, name);
  };
  EXPECT_TRUE(is_host("node1", "node1", resolver));
  EXPECT_FALSE(is_host("node2", "node1", resolver));
  EXPECT_FALSE(is_host("node10", "node1", resolver));
  EXPECT_FALSE(is_host("nod", "node1", resolver));
  EXPECT_TRUE(asked.empty());
  EXPECT_TRUE(is_host("node1.rack-a", "node1", resolver));
  EXPECT_FALSE(is_host("node1.rack-b", "node1", resolver));
  EXPECT_FALSE(is_host("node1.rack-c", "node1", resolver));  // of which it knows nothing
  EXPECT_FALSE(is_host("node1.rack-b", "node1.rack-a", resolver));
  EXPECT_FALSE(is_host("node1", "node1.rack-a", resolver));
  const Resolver by_search_domain = [](const std::string& name) {
    return known({{"node1", "127.0.0.1"}}, name);
  };
  EXPECT_TRUE(is_host("node1", "node1.rack-a", by_search_domain));
}

JobDescription some_job() {
  JobDescription job;
  job.id = "secret";
  job.size = 7;
  job.bind_cores = true;
  job.program = {"program", "", "a b"};
  job.variables = {"A=1", "B="};
  job.folder = "/somewhere";
  job.connect = {"ssh", "-T"};
  job.tutti = "/usr/bin/tutti";
  job.fan_out = 3;
  job.hosts = {{"a", 1, 0, 3}, {"b", 2, 3, 4}};
  return job;
}

TEST(AgentMessages, AJobArrivesAsItWas) {
  const JobDescription job = decode_job(encode(some_job()));
  EXPECT_EQ(encode(job), encode(some_job()));
  EXPECT_EQ(job.program, some_job().program);
  EXPECT_EQ(job.hosts[1].name, "b");
  EXPECT_EQ(job.hosts[1].ranks, 4);
}

TEST(AgentMessages, MessagesArriveInPieces) {
  std::string bytes;
  for (int i = 0; i < 50; ++i) {
    bytes += encode(Message{MessageKind::output, i, 1, -i, std::string(i * 7U, 'x')});
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{19}, std::size_t{1000}}) {
    MessageReader reader;
    int got = 0;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(std::string_view(bytes).substr(at, piece));
      while (const auto message = reader.next()) {
        EXPECT_EQ(message->host, got);
        EXPECT_EQ(message->value, -got);
        EXPECT_EQ(message->text, std::string(got * 7U, 'x'));
        ++got;
      }
    }
    EXPECT_EQ(got, 50);
  }
}

TEST(AgentMessages, DamagedOnesAreRefused) {
  const std::string good = encode(some_job());
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_THROW(decode_job(good.substr(0, size)), Error) << size;
  }
  EXPECT_THROW(decode_job(good + "x"), Error);
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 3; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    try {
      const JobDescription job = decode_job(bad);
      for (const HostShare& host : job.hosts) {
        EXPECT_LE(host.first_rank + host.ranks, job.size);
        EXPECT_GE(host.ranks, 0);
      }
    } catch (const Error&) {
    }
  }
  MessageReader reader;
  reader.add("this is no message at all");
  EXPECT_THROW(reader.next(), Error);
}

}  // namespace
}  // namespace tutti
