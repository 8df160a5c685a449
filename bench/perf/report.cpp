// Table and JSON; see report.h. The JSON's keys are those of nccl-tests where both have one.
#include "bench/perf/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "core/error.h"

namespace tutti::perf {

using nlohmann::ordered_json;

namespace {

constexpr int kJsonVersion = 1;

ordered_json config_json(const PerfOptions& options) {
  ordered_json config = {{"nthreads", options.threads},
                         {"ngpus", options.ranks_per_thread()},
                         {"minimum_bytes", options.min_bytes},
                         {"maximum_bytes", options.max_bytes}};
  if (options.step_factor > 1) {
    config["step_factor"] = options.step_factor;
  } else {
    config["step_bytes"] = options.step_bytes;
  }
  config["warmup_iters"] = options.warmup;
  config["iterations"] = options.iterations;
  config["aggregated_iterations"] = options.aggregate;
  config["run_cycles"] = options.cycles;
  config["validation"] = options.checks;
  config["blocking_collectives"] = static_cast<int>(options.blocking);
  config["parallel_init"] = options.parallel_init;
  config["average"] = static_cast<int>(options.average);
  config["local_register"] = options.local_register;
  config["unalign"] = options.unalign;
  config["cudagraph"] = options.graph_launches;
  return config;
}

ordered_json timed_json(const Timed& timed, const PerfOptions& options) {
  ordered_json json;
  json[options.cpu_time ? "cpu_time" : "time"] =
      (options.cpu_time ? timed.cpu_seconds : timed.seconds) * 1e6;
  json["alg_bw"] = timed.algorithm_gbps;
  json["bus_bw"] = timed.bus_gbps;
  json["nwrong"] = timed.wrong ? ordered_json(*timed.wrong) : ordered_json();
  if (timed.iterations) {
    const IterationStats& stats = *timed.iterations;
    json["per_iter"] = {{"skipped_iterations", stats.skipped},
                        {"min_us", stats.minimum},
                        {"max_us", stats.maximum},
                        {"avg_us", stats.mean},
                        {"p50_us", stats.p50},
                        {"p95_us", stats.p95},
                        {"p99_us", stats.p99},
                        {"stdev_us", stats.deviation},
                        {"cv_pct", stats.variation_percent},
                        {"times_us", stats.times}};
  }
  return json;
}

ordered_json measurement_json(const Measurement& measurement, const PerfOptions& options) {
  ordered_json json = timed_json(measurement, options);
  if (options.nccl.empty()) return json;
  json["nccl"] = nullptr;
  if (measurement.nccl) {
    json["nccl"] = timed_json(*measurement.nccl, options);
    json["nccl"]["ratio"] = measurement.ratio(options.cpu_time);
  }
  return json;
}

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / (1024 * 1024));
}

}  // namespace

struct Report::Json {
  ordered_json document;
};

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local)};
}

Report::Report(std::string_view program, const PerfOptions& options,
               const std::vector<std::string>& arguments)
    : program_(program), options_(options) {
  if (options.output_file.empty()) return;
  file_.open(options.output_file);
  if (!file_) {
    throw_system_error(fmt::format("--output_file {} cannot be written", options.output_file));
  }
  json_ = std::make_unique<Json>();
  json_->document = {{"version", kJsonVersion},
                     {"program", program_},
                     {"start_time", timestamp()},
                     {"args", arguments},
                     {"tutti_version", TUTTI_PERF_VERSION},
                     {"config", config_json(options)},
                     {"results", ordered_json::array()}};
}

Report::~Report() = default;

void Report::print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);  // a row appears when it is measured, through a launcher's pipe too
}

void Report::start(const std::vector<RankInfo>& ranks, const std::string& nccl_version,
                   const std::string& transport) {
  print(format_header(program_, options_, ranks, nccl_version, transport));
  if (!json_) return;
  ordered_json devices = ordered_json::array();
  for (const RankInfo& rank : ranks) {
    devices.push_back({{"rank", rank.rank},
                       {"group", 0},
                       {"pid", rank.pid},
                       {"hostname", rank.host},
                       {"device", rank.device},
                       {"device_hex", rank.device_id},
                       {"device_info", rank.memory}});
  }
  json_->document["config"]["devices"] = devices;
  if (!transport.empty()) json_->document["config"]["transport"] = transport;
  if (options_.nccl.empty()) return;
  json_->document["nccl"] = {
      {"library", options_.nccl}, {"version", nccl_version}, {"failure", nullptr}};
}

void Report::drop_nccl(const std::string& why) {
  print(fmt::format("# NCCL is not measured any more: {}\n", why));
  if (json_) json_->document["nccl"]["failure"] = why;
}

void Report::add(const Row& row) {
  print(format_row(row, options_));
  if (!json_) return;
  ordered_json json = {
      {"size", row.bytes},       {"count", row.count},
      {"type", label(row.type)}, {"redop", label(row.op)},
      {"root", row.root},        {"out_of_place", measurement_json(row.out_of_place, options_)}};
  json["in_place"] =
      row.in_place ? measurement_json(*row.in_place, options_) : ordered_json(nullptr);
  json["timestamp"] = row.timestamp;
  json_->document["results"].push_back(json);
}

void Report::finish(const Total& total, const MemoryReport& memory) {
  if (options_.memory_report) {
    print(fmt::format("# {:<20} : before buffers {} | buffers {} | peak {}\n", "Memory usage",
                      mebibytes(memory.before_buffers), mebibytes(memory.buffers),
                      mebibytes(memory.peak)));
  }
  print(format_footer(program_, total));
  if (!json_) return;
  ordered_json& document = json_->document;
  document["out_of_bounds"] = {{"count", total.wrong}, {"okay", total.wrong == 0}};
  document["average_bus_bandwidth"] = {{"bandwidth", total.average_bus_gbps}};
  if (options_.memory_report) {
    document["memory"] = {{"before_buffers", memory.before_buffers},
                          {"buffers", memory.buffers},
                          {"peak", memory.peak}};
  }
  document["end_time"] = timestamp();
  file_ << document.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
  file_.close();
  if (!file_) {
    throw_system_error(fmt::format("--output_file {} cannot be written", options_.output_file));
  }
}

}  // namespace tutti::perf
