// The verdict on real logs, and on the same logs made sick: times are stretched as a fault
// stretches them, by arithmetic that has nothing of the model's. Where the logs are not at hand,
// nothing is tested (tests/topology/topology_data.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "laboratory/predict/judge_log.h"
#include "tests/topology/topology_data.h"
#include "tools/cluster/nccl_log.h"

namespace tutti {
namespace {

NcclLog log_named(const std::string& start) {
  for (const auto& entry :
       std::filesystem::directory_iterator(test::topology_data() + "/nccl-tests-logs")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".log" || !name.starts_with(start)) continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    return parse_nccl_log(text.str(), entry.path().string());
  }
  ADD_FAILURE() << "no log " << start;
  return {};
}

VerdictReport verdict_on(const NcclLog& log) {
  const ClusterSetup setup = set_up({}, &log);
  const cluster::Cluster c(setup.host, setup.hosts, setup.network,
                           of_generation({}, {}, setup.host), setup.gpus);
  NcclCall call;
  call.collective = *log.collective;
  call.gpus_of_thread = log.gpus_of_thread;
  std::vector<Line> lines;
  for (const LogRow& row : log.rows) {
    call.bytes = static_cast<double>(row.bytes);
    lines.emplace_back(call.bytes, row).predicted = predict_nccl(c, call).front();
  }
  return judge_log(lines, c, setup, call, log);
}

/// The healthy ones' plateau, bytes per us, and the time of their shortest call.
double plateau(const NcclLog& log) {
  double best = 0;
  for (const LogRow& r : log.rows) best = std::max(best, static_cast<double>(r.bytes) / r.us);
  return best;
}
double shortest(const NcclLog& log) {
  return std::ranges::min_element(log.rows, {}, &LogRow::us)->us;
}

/// What moves takes `times` as long, and each call `us` more.
NcclLog stretched(NcclLog log, double times, double us) {
  const double rate = plateau(log);
  for (LogRow& r : log.rows) r.us += (times - 1) * static_cast<double>(r.bytes) / rate + us;
  return log;
}

/// Nothing is faster than so many GB/s (algbw).
NcclLog limited(NcclLog log, double rate, double us) {
  for (LogRow& r : log.rows) {
    r.us = std::max(r.us, static_cast<double>(r.bytes) / rate / 1000) + us;
  }
  return log;
}

TEST(SickLogs, AreFoundWithTheirCause) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  struct Case {
    const char* fault;
    const char* log;
    std::function<NcclLog(NcclLog)> make;
    std::vector<std::string> causes;  // any of these
  };
  const std::vector<Case> cases{
      {"one port of eight",
       "16xH200_2node",
       [](auto l) { return stretched(l, 8, 0); },
       {"one_port"}},
      {"a rail is missing",
       "16xH100_2node_GKE-A3Mega",
       [](auto l) { return stretched(l, 2, 0); },
       {"slow_rail"}},
      {"ports a generation down",
       "16xB200_2node_GCP-A4",
       [](auto l) { return stretched(l, 2, 0); },
       {"port_rate", "slow_rail"}},
      {"no GPUDirect",
       "16xH200_2node",
       [](auto l) { return stretched(l, 3, 15); },
       {"no_gpudirect"}},
      {"sockets over 100G", "16xH200_2node", [](auto l) { return limited(l, 8, 120); }, {"tcp"}},
      {"PCI for NVLink",
       "8xA100",
       [](auto l) { return limited(l, 11.5, 8); },
       {"pci_for_nvlink", "no_peer_access"}},
      // One link of twelve is not known to one end: NCCL then made 2 channels of 24.
      {"NVLink with two channels",
       "2xA100",
       [](auto l) { return stretched(l, 6, 0); },
       {"fewer_gpu_links"}},
      {"PCI at half",
       "2xRTX4090_1node_all_reduce",
       [](auto l) { return stretched(l, 2, 0); },
       {"pci_rate"}},
      {"LL for everything", "8xA100", [](auto l) { return limited(l, 45, 0); }, {"protocol"}},
      {"cold clocks", "8xH100", [](auto l) { return stretched(l, 1, 2 * shortest(l)); }, {"cold"}}};
  int found = 0, caused = 0;
  for (const Case& c : cases) {
    const VerdictReport r = verdict_on(c.make(log_named(c.log)));
    const bool slow = r.verdict.outcome == Outcome::slow;
    const bool named = std::ranges::any_of(r.causes, [&](const Cause& cause) {
      return std::ranges::find(c.causes, cause.id) != c.causes.end();
    });
    std::string causes;
    for (const Cause& cause : r.causes) causes += " " + cause.id;
    RecordProperty(c.fault, first_line(r) + causes);
    printf("%s %s %s: %s;%s\n", slow ? "found" : "MISSED", named ? "cause" : "NO CAUSE", c.fault,
           first_line(r).c_str(), causes.c_str());
    found += slow;
    caused += named;
    EXPECT_LE(r.causes.size(), 3U);
  }
  EXPECT_GE(found, 9);
  EXPECT_GE(caused, 7);
}

TEST(SickLogs, HealthyOnesRaiseNoAlarm) {
  SKIP_WITHOUT_TOPOLOGY_DATA();
  int logs = 0, alarms = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::topology_data() + "/nccl-tests-logs")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".log") continue;
    const VerdictReport r = verdict_on(log_named(name));
    if (name.starts_with("16xB200_2node_GKE-A4")) {
      // Five times the latency of the same cloud's other machines.
      EXPECT_EQ(r.verdict.outcome, Outcome::slow) << first_line(r);
      continue;
    }
    ++logs;
    alarms += r.verdict.outcome == Outcome::slow;
    if (r.verdict.outcome == Outcome::slow)
      printf("alarm %s: %s\n", name.c_str(), first_line(r).c_str());
  }
  EXPECT_GT(logs, 0);
  EXPECT_LE(alarms, logs / 30);
}

}  // namespace
}  // namespace tutti
