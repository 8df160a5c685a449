// `tutti reshard`: what it takes to bring weights from one layout into another, whose descriptions
// are files: proves the plan, says what goes over links and how long it takes, and draws it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/counted.h"
#include "core/error.h"
#include "core/host_memory.h"
#include "parallel/reshard/draw.h"
#include "parallel/reshard/predict.h"
#include "parallel/reshard/verify.h"
#include "tools/command_line/command.h"
#include "tools/command_line/number_in.h"
#include "tools/text_file.h"
#include "tools/topology_source.h"
#include "topology/nics.h"

namespace tutti {
namespace {

namespace reshard = parallel::reshard;
using reshard::Layout;
using reshard::Plan;

struct Arguments {
  std::string from, to, output, topology;
  int per_host = 0;
  std::optional<double> gbits;  // of a host's link
  double memory = 10, latency = 20, message_mib = 4;
};

/// What a host is like, by its topology.
struct Host {
  int gpus = 0;
  double gbits = 0;  // of all its ports together, from memory and one way
};

Host host_of_file(const std::string& path) {
  topology::Records records = topology_records(path);
  const topology::Graph graph = topology_graph(records);
  Host host;
  for (const int gpu : graph.gpus()) host.gpus += graph.node(gpu).host == 0 ? 1 : 0;
  for (const int port : topology::data_ports(graph, 0)) {
    double most = 0;
    for (const int numa : graph.all(topology::NodeKind::numa)) {
      if (graph.node(numa).host == 0) most = std::max(most, graph.path(numa, port).bandwidth);
    }
    host.gbits += 8 * most;
  }
  return host;
}

/// Fills in what the topology says and the command line does not.
void complete(Arguments& a) {
  if (!a.topology.empty()) {
    const Host host = host_of_file(a.topology);
    if (a.per_host == 0) a.per_host = host.gpus;
    if (!a.gbits && host.gbits > 0) a.gbits = host.gbits;
    if (a.per_host == 0 || !a.gbits) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} has no {}: say {}", a.topology,
                              a.per_host == 0 ? "GPUs, by which ranks are counted" : "ports",
                              a.per_host == 0 ? "--per-host" : "--gbits"));
    }
  }
  if (!a.gbits) a.gbits = 100;
}

Layout layout_of_file(const std::string& path, reshard::Side side) {
  if (path.ends_with(".safetensors")) {
    return reshard::layout_of_safetensors(std::vector<std::string>{path});
  }
  return parse_text_of(path, read_text(path, "layout"), [&](const std::string& text) {
    Layout layout = reshard::layout_from_json(text);
    layout.check(side);
    return layout;
  });
}

/// Both layouts and their plan.
struct Case {
  Layout from, to;
  Plan plan;
  reshard::Verdict verdict;
};

Case load(const Arguments& a) {
  Case c{
      layout_of_file(a.from, reshard::Side::from), layout_of_file(a.to, reshard::Side::to), {}, {}};
  // A file is all on rank 0, of as many ranks as the other layout has.
  for (auto* const l : {&c.from, &c.to}) {
    if ((l == &c.from ? a.from : a.to).ends_with(".safetensors")) {
      l->ranks = std::max(c.from.ranks, c.to.ranks);
    }
  }
  reshard::PlanOptions options;
  options.message_bytes =
      std::max<std::uint64_t>(static_cast<std::uint64_t>(a.message_mib * (1 << 20)), 1);
  if (a.per_host > 0) {
    for (int r = 0; r < c.from.ranks; ++r) options.hosts.push_back(r / a.per_host);
  }
  c.plan = reshard::make_plan(c.from, c.to, options);
  c.verdict = reshard::verify(c.from, c.to, c.plan);
  if (!c.verdict.right) {
    throw Error(ErrorCode::unproven_plan,
                fmt::format("the plan is not proved: {}", c.verdict.story));
  }
  return c;
}

std::string size_text(std::uint64_t bytes) { return memory_text(static_cast<double>(bytes)); }

void estimate(Arguments a) {
  complete(a);
  const double link = *a.gbits * 1e9 / 8;
  const Case c = load(a);
  std::uint64_t own = 0, host = 0, far = 0, relayed = 0;
  for (const reshard::Message& m : c.plan.messages) {
    const auto moves = c.plan.moves_of(m);
    const bool inside = c.plan.hosts[reshard::index(m.from)] == c.plan.hosts[reshard::index(m.to)];
    (m.from == m.to ? own : inside ? host : far) += m.bytes;
    if (moves.front().relay) relayed += m.bytes;
  }
  const reshard::Prediction p = reshard::predict(c.plan, {link, a.memory * 1e9, a.latency * 1e-6});
  const double bound = static_cast<double>(c.verdict.bound) / link;
  const auto hosts = c.verdict.loads.sent.size();
  fmt::print("{}, {} on {}; a model of {}\n", counted(c.to.tensors.size(), "tensor"),
             counted(c.from.ranks, "rank"), counted(hosts, "host"), size_text(c.to.model_bytes()));
  fmt::print("  proved: {} in {}; each element of the target is written once\n",
             counted(c.plan.moves.size(), "move"), counted(c.plan.messages.size(), "message"));
  fmt::print("  ranks' own copies   {:>12}\n", size_text(own));
  fmt::print("  inside hosts        {:>12}\n", size_text(host));
  fmt::print("  between hosts       {:>12}\n", size_text(far));
  if (relayed > 0) fmt::print("    (passed on by receivers: {} of all)\n", size_text(relayed));
  if (hosts > 1) {
    const auto most = c.verdict.loads.most();
    fmt::print("  the busiest link    {:>12}, {:.3f} times the least that any plan needs ({})\n",
               size_text(most),
               c.verdict.bound == 0
                   ? 1.0
                   : static_cast<double>(most) / static_cast<double>(c.verdict.bound),
               size_text(c.verdict.bound));
    if (!c.verdict.proved) fmt::print("  not proved of links: {}\n", c.verdict.story);
    fmt::print("  bound by that link  {:>10.4g} s, at {:g} Gbit/s in each direction\n", bound,
               *a.gbits);
  }
  fmt::print("  predicted           {:>10.4g} s, where a rank copies {:g} GB/s\n", p.end, a.memory);
}

void check(const Arguments& a) {
  const Layout layout = layout_of_file(a.from, reshard::Side::to);
  std::size_t pieces = 0;
  for (const auto& t : layout.tensors) pieces += t.pieces.size();
  fmt::print("{} in {} on {}: {}\n", counted(layout.tensors.size(), "tensor"),
             counted(pieces, "piece"), counted(layout.ranks, "rank"),
             size_text(layout.model_bytes()));
  for (int r = 0; r < std::min(layout.ranks, 64); ++r) {
    std::uint64_t bytes = 0;
    for (const std::uint64_t b : layout.bytes_of(r)) bytes += b;
    fmt::print("  rank {:<6} {:>12}\n", r, size_text(bytes));
  }
}

void draw(const Arguments& a) {
  const Case c = load(a);
  write_text_file(a.output, reshard::draw_svg(c.from, c.to, c.plan));
}

void add_layouts(CLI::App& command, Arguments& a) {
  command
      .add_option(
          "source", a.from,
          "The layout that the weights have (JSON; -: stdin), or a safetensors file, all on rank 0")
      ->type_name("A.json")
      ->required();
  command.add_option("target", a.to, "The layout that they get")->type_name("B.json")->required();
  command
      .add_option("--per-host", a.per_host,
                  "Ranks of each host, one host after the other [all on one]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--message", a.message_mib, "About the most of a message between hosts [4]")
      ->type_name("MIB")
      ->check(number_in(1e-6, 4096, "MiB"));
}

void define(CLI::App& command) {
  command.require_subcommand(1);
  command.footer(
      "A layout says which rank holds which elements of which tensors (docs/reshard.md has the "
      "form). Examples:\n"
      "  tutti reshard check trainer.json\n"
      "  tutti reshard estimate trainer.json server.json --per-host 8 --gbits 400\n"
      "  tutti reshard draw trainer.json server.json --per-host 8 -o reshard.svg");
  const auto add = [&command](const char* name, const char* help, const char* footer) {
    auto* sub = command.add_subcommand(name, help);
    sub->footer(footer);
    return std::pair(sub, std::make_shared<Arguments>());
  };
  {
    auto [sub, a] = add("check", "Check a layout, and say what each rank holds",
                        "Example:\n  tutti reshard check trainer.json");
    sub->add_option("layout", a->from, "The layout (JSON; -: stdin), or a safetensors file")
        ->type_name("A.json")
        ->required();
    sub->callback([arguments = a] { check(*arguments); });
  }
  {
    auto [sub, a] =
        add("estimate", "Make the plan from one layout to another, prove it, and say what it takes",
            "Exit status: 0 proved; 1 not proved, and stderr says why; 2 bad usage.\n"
            "Example:\n"
            "  tutti reshard estimate trainer.json server.json --per-host 8 --gbits "
            "400");
    add_layouts(*sub, *a);
    sub->add_option(
           "-t,--topology", a->topology,
           "A host: any file that `tutti topo --file` reads. Its ports are its link, and it "
           "has a rank for each GPU")
        ->type_name("FILE");
    sub->add_option("--gbits", a->gbits,
                    "Of a host's link, in each direction [the topology's, or 100]")
        ->type_name("GBIT/S")
        ->check(number_in(1e-3, 1e6, "Gbit/s"));
    sub->add_option("--memory", a->memory, "That a rank copies [10]")
        ->type_name("GB/S")
        ->check(number_in(1e-3, 1e5, "GB/s"));
    sub->add_option("--latency", a->latency, "Of a message between hosts [20]")
        ->type_name("US")
        ->check(number_in(0, 1e7, "microseconds"));
    sub->callback([arguments = a] { estimate(*arguments); });
  }
  {
    auto [sub, a] = add("draw", "Draw which rank gets how much from which one (SVG)",
                        "Example:\n  tutti reshard draw trainer.json server.json -o reshard.svg");
    add_layouts(*sub, *a);
    sub->add_option("-o,--output", a->output, "Write the picture to this file [stdout]")
        ->type_name("FILE");
    sub->callback([arguments = a] { draw(*arguments); });
  }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("reshard", tutti::define, argc, argv); }
