// `tutti estimate`: memory, traffic and time of training a model on a cluster, for each way to
// spread it, and which one to use.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "core/counted.h"
#include "core/error.h"
#include "core/number.h"
#include "tools/cluster/cluster_setup.h"
#include "tools/command_line/command.h"
#include "tools/estimate/estimate_cluster.h"
#include "tools/estimate/estimate_report.h"
#include "tools/estimate/model_config.h"
#include "tools/terminal.h"
#include "tools/text_file.h"
#include "topology/describe.h"

namespace tutti {
namespace {

namespace estimated = parallel::estimate;

struct Arguments {
  std::string model, config, memory, precision = "bfloat16", picture;
  ClusterArguments cluster;  // the part that describes it
  std::size_t length = 4096, sequences = 0, experts = 0, top_k = 2;
  int gpus = 0;
  std::optional<double> teraflops;
  bool json = false, formulas = false;
};

[[noreturn]] void refuse_estimate(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

estimated::Model model_of(const Arguments& a) {
  const auto with_experts = [&](estimated::TransformerSizes sizes) {
    if (a.experts > 0) {
      sizes.num_local_experts = a.experts;
      sizes.num_experts_per_tok = a.top_k;
      sizes.name += fmt::format(", with {} experts", a.experts);
    }
    return estimated::transformer(sizes);
  };
  if (!a.config.empty()) return with_experts(read_model_config(a.config));
  if (a.model.empty()) refuse_estimate("say which model: --model 7B, or --config config.json");
  const auto sizes = estimated::transformer_of(a.model);
  if (!sizes) {
    std::string known;
    for (const auto& s : estimated::known_transformers()) known += s.name + ", ";
    refuse_estimate(
        fmt::format("--model {}: a number of parameters, such as {}or 34B; --config "
                    "reads a config.json",
                    a.model, known));
  }
  return with_experts(*sizes);
}

parallel::Precision precision_of(const std::string& name) {
  using parallel::Precision;
  if (name == "bfloat16" || name == "bf16") return Precision::mixed();
  if (name == "float16" || name == "fp16") return Precision::mixed(DataType::float16);
  if (name == "float32" || name == "fp32") return Precision{};
  refuse_estimate(fmt::format("--precision {}: bfloat16, float16 or float32", name));
}

/// Decimal, as memory of GPUs is sold: 80G is 80e9.
double bytes_of(const std::string& text) {
  std::string digits = text;
  double times = 1;
  if (!digits.empty() && (digits.back() == 'G' || digits.back() == 'g')) times = 1e9;
  if (!digits.empty() && (digits.back() == 'M' || digits.back() == 'm')) times = 1e6;
  if (times > 1) digits.pop_back();
  const auto number = parse_number<double>(digits);
  if (!number || !(*number * times >= 1e6) || *number * times > 1e15) {
    refuse_estimate(fmt::format("--gpu-memory {}: such as 80G (1e9 bytes each)", text));
  }
  return *number * times;
}

/// The hosts that so many GPUs need.
ClusterSetup cluster_of(const Arguments& a, std::string& said) {
  ClusterArguments p = a.cluster;
  std::string guessed;
  if (p.topology.empty() && p.machine.empty()) {
    p.machine = "8xH100";
    guessed = ", guessed (--machine, --topology)";
  }
  ClusterArguments one = p;
  one.hosts = 1;
  const int of_a_host = static_cast<int>(set_up(one, nullptr).host.gpus().size());
  const int gpus = a.gpus > 0 ? a.gpus : of_a_host * std::max(1, p.hosts);
  if (p.hosts == 0) p.hosts = (gpus + of_a_host - 1) / of_a_host;
  if (gpus % p.hosts != 0 || gpus / p.hosts > of_a_host) {
    refuse_estimate(fmt::format("--gpus {}: {} of {} cannot have as many each", gpus,
                                counted(p.hosts, "host"), counted(of_a_host, "GPU")));
  }
  p.gpus = gpus / p.hosts;
  ClusterSetup setup = set_up(p, nullptr);
  said = setup.said + guessed;
  for (const std::string& g : setup.guessed) said += "\n# guessed: " + g;
  return setup;
}

/// What a GPU has, by its model where no option says it: of several models in a host, the least.
struct GpuPower {
  double memory = 80e9, flops = 400e12;  // of GPUs that nothing is known of: those of an H100
};

GpuPower power_of(const Arguments& a, const topology::Graph& host, std::string& said) {
  // As the runs of docs/estimate.md reach it.
  constexpr double kReached = 0.4;
  const auto least = [&](double topology::GpuModel::*value) {
    const topology::GpuModel* model = nullptr;
    for (const int gpu : host.gpus()) {
      const topology::GpuModel* m = topology::gpu_model_named(host.node(gpu).model);
      if (m == nullptr) m = topology::find_gpu_model(host.node(gpu).model);
      if (m == nullptr || m->*value == 0) continue;
      if (model == nullptr || m->*value < model->*value) model = m;
    }
    return model;
  };
  constexpr const char* kNobody = "as nothing says which GPUs these are";
  GpuPower power;
  if (!a.memory.empty()) {
    power.memory = bytes_of(a.memory);
  } else {
    const topology::GpuModel* model = least(&topology::GpuModel::memory);
    if (model != nullptr) power.memory = model->memory * 1e9;
    said += fmt::format("\n# guessed: {:g} GB, {} (--gpu-memory)", power.memory / 1e9,
                        model == nullptr ? kNobody : fmt::format("as {} has", model->name));
  }
  if (a.teraflops) {
    power.flops = *a.teraflops * 1e12;
  } else {
    const topology::GpuModel* model = least(&topology::GpuModel::teraflops);
    if (model != nullptr) power.flops = kReached * model->teraflops * 1e12;
    said +=
        fmt::format("\n# guessed: {:.0f} TFLOP/s, {} (--tflops)", power.flops / 1e12,
                    model == nullptr ? kNobody
                                     : fmt::format("{:g} % of the {:g} that {} has in 16 bits",
                                                   100 * kReached, model->teraflops, model->name));
  }
  return power;
}

void run_estimate(const Arguments& a) {
  if (a.formulas) {
    fmt::print("{}", estimate_formulas());
    return;
  }
  const estimated::Model model = model_of(a);
  if (a.teraflops && !(*a.teraflops > 0)) refuse_estimate("--tflops: more than 0");
  if (!a.memory.empty()) (void)bytes_of(a.memory);  // before what takes longer
  const estimated::Job job{a.length, a.sequences, precision_of(a.precision)};
  std::string said;
  const ClusterSetup setup = cluster_of(a, said);
  const GpuPower power = power_of(a, setup.host, said);
  const auto costs = std::make_shared<ClusterCosts>(setup, constants_of(a.cluster));
  const estimated::Cluster cluster{
      .gpus = setup.hosts * setup.gpus,
      .gpus_of_a_host = setup.gpus,
      .memory = power.memory,
      .flops = power.flops,
      .cost = [costs](Collective c, const estimated::AxisPlace& at) { return (*costs)(c, at); }};
  show_progress("estimating all mixes");
  const estimated::Recommendation result = estimated::recommend(model, cluster, job);
  show_progress("");
  const EstimateReport report{model, cluster, job, result, said};
  if (!a.picture.empty()) write_text_file(a.picture, estimate_picture(report));
  fmt::print("{}", a.json ? estimate_json(report) : estimate_table(report, terminal_columns()));
}

/// The options, and the work.
void define(CLI::App& command) {
  const auto a = std::make_shared<Arguments>();
  auto* model = command.add_option_group("Model");
  auto* size = model->add_option("-M,--model", a->model, "Its parameters: 7B, 8B, 70B, 405B, ...")
                   ->type_name("SIZE");
  model->add_option("--config", a->config, "A config.json of Hugging Face's transformers")
      ->type_name("FILE")
      ->excludes(size);
  auto* experts =
      model
          ->add_option("--experts", a->experts,
                       "Experts of each block, each as large as the model's MLP [the model's]")
          ->check(CLI::Range(1, 4096));
  model->add_option("--top-k", a->top_k, "With --experts: those to which a token goes")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->needs(experts);
  model->add_option("-s,--seq", a->length, "Tokens of a sequence")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  model
      ->add_option("-B,--batch", a->sequences,
                   "Sequences of a step, of all GPUs [as many as make 4 Mi tokens]")
      ->check(CLI::Range(1, 100'000'000));
  model->add_option("--precision", a->precision, "bfloat16 or float16 (master in float32), float32")
      ->capture_default_str();
  auto* machine = command.add_option_group("Cluster");
  machine->add_option("-g,--gpus", a->gpus, "GPUs of the job [all]")->check(CLI::Range(1, 1 << 20));
  machine
      ->add_option("--gpu-memory", a->memory,
                   "Of a GPU, for the training: 80G [what its model has]")
      ->type_name("BYTES");
  machine->add_option(
      "--tflops", a->teraflops,
      "What a GPU reaches with such models, in TFLOP/s [40 % of what its model has in 16 bits]");
  machine
      ->add_option("-t,--topology", a->cluster.topology,
                   "A host: any file that `tutti topo --file` reads")
      ->type_name("FILE");
  machine->add_option("-m,--machine", a->cluster.machine, "A host by its GPUs [8xH100]")
      ->type_name("TEXT");
  machine->add_option("-H,--hosts", a->cluster.hosts, "Equal hosts [as many as the GPUs need]")
      ->check(CLI::Range(1, 100'000'000));
  machine
      ->add_option("-N,--network", a->cluster.network,
                   "Between hosts, as for `tutti predict`: ib 8x400G, efa, p5, ...")
      ->type_name("TEXT");
  command.add_flag("--json", a->json, "Everything, for programs");
  command.add_option("--svg", a->picture, "Draw the memory, and time against memory")
      ->type_name("FILE");
  command.add_flag("--formulas", a->formulas, "Print the formulas of the columns");
  command.footer("docs/estimate.md says what is counted, and how good the estimates are.");
  command.callback([a] { run_estimate(*a); });
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::run_tool("estimate", tutti::define, argc, argv); }
