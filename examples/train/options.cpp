#include "examples/train/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <tuple>

#include "core/error.h"
#include "parallel/pipeline/generate.h"
#include "tools/command_line/usage_error.h"

namespace train {
namespace {

const std::map<std::string, Sharding> kShardings{{"none", Sharding::none},
                                                 {"zero1", Sharding::zero1},
                                                 {"zero2", Sharding::zero2},
                                                 {"zero3", Sharding::zero3},
                                                 {"fsdp", Sharding::fsdp}};

// More are a slip of the finger, and products of them are still numbers.
constexpr int kMostRanks = 1 << 20, kMostThreads = 1024;

[[noreturn]] void refuse(const std::string& why) {
  throw tutti::Error(tutti::ErrorCode::invalid_argument, "this mix cannot be: " + why);
}

}  // namespace

Options parse_options(int argc, char** argv) {
  Options o;
  CLI::App app(
      "Trains a small GPT on text, spread over the ranks in any mix:\n"
      "    tutti run -n 4 train --dp 2 --tp 2 --shard fsdp\n"
      "Goes on without ranks that die, and with those that replace them:\n"
      "    tutti run --elastic 2:4 train --batch 12 --shard fsdp --save DIR --resume");
  app.add_option("--dp", o.dp, "ranks with different data (default: all other ranks)");
  app.add_option("--tp", o.tp, "ranks that share each layer")->capture_default_str();
  app.add_option("--pp", o.pp, "ranks that have consecutive layers")->capture_default_str();
  app.add_option("--cp", o.cp, "of the dp ranks, those that share each sequence, in a ring")
      ->capture_default_str();
  app.add_option("--cp-heads", o.cp_heads,
                 "of the cp ranks, those that exchange rows for heads (Ulysses) inside of the ring")
      ->capture_default_str();
  app.add_option("--ep", o.ep, "of the dp ranks, those that divide the experts among each other")
      ->capture_default_str();
  std::string shard = "none";
  app.add_option("--shard", shard,
                 "what dp ranks divide among each other; none: they average gradients")
      ->capture_default_str()
      ->check(CLI::IsMember(kShardings));
  app.add_option("--replicas", o.replicas, "groups of dp ranks; each group has all shards")
      ->capture_default_str();
  app.add_option("--schedule", o.schedule,
                 "the pipeline's schedule: a name of `tutti schedule list`, or a file")
      ->capture_default_str();
  app.add_option("--micro-batches", o.micro_batches, "micro-batches of a step")
      ->capture_default_str();
  app.add_flag("--sequence", o.sequence, "tensor-parallel ranks keep parts of the sequence");
  app.add_flag("--recompute", o.recompute,
               "compute activations of blocks again instead of keeping them");
  app.add_flag("--alone", o.alone, "each rank trains for itself: no communication");
  app.add_option("--layers", o.shape.layers)->capture_default_str();
  app.add_option("--width", o.shape.width)->capture_default_str();
  app.add_option("--heads", o.shape.heads)->capture_default_str();
  app.add_option("--length", o.shape.length, "length of a sequence, in bytes")
      ->capture_default_str();
  app.add_option("--experts", o.shape.experts, "experts of each block; 0: one MLP for all tokens")
      ->capture_default_str();
  app.add_option("--top-k", o.shape.top_k, "experts to which a token goes")->capture_default_str();
  app.add_option("--balance", o.balance,
                 "the coefficient of the loss that keeps experts equally busy; 0: none")
      ->capture_default_str();
  app.add_flag("--tied", o.shape.tied, "embedding and logits have one matrix");
  app.add_option("--dropout", o.shape.dropout, "dropout of the output of each part of a block")
      ->capture_default_str();
  app.add_option("--batch", o.batch, "sequences of a step, of all ranks")->capture_default_str();
  app.add_option("--steps", o.steps)->capture_default_str();
  app.add_option("--rate", o.rate, "learning rate")->capture_default_str();
  app.add_option("--decay", o.decay, "weight decay")->capture_default_str();
  app.add_option("--clip", o.clip, "limit of the gradients' norm; 0: none")->capture_default_str();
  app.add_option("--seed", o.seed)->capture_default_str();
  app.add_option("--text", o.text, "a file, or a folder with sources")->capture_default_str();
  app.add_option("--threads", o.threads, "threads of each rank")->capture_default_str();
  app.add_option("--report", o.report, "steps between lines")->capture_default_str();
  app.add_flag("--invariant", o.invariant,
               "reductions whose bits depend on the inputs and the order of the ranks alone");
  app.add_flag("--check-nan", o.check_nan,
               "end at the first gradient that is not finite, and name it and its rank");
  auto* save = app.add_option("--save", o.save, "a folder, into which all ranks write checkpoints");
  app.add_option("--every", o.every, "steps between checkpoints")
      ->capture_default_str()
      ->needs(save);
  app.add_flag("--resume", o.resume,
               "begin with the newest whole checkpoint of the folder, whatever mix has written it")
      ->needs(save);
  app.add_option("--trace", o.trace, "a file for the last step's trace (ui.perfetto.dev shows it)");
  app.add_option("--nccl", o.nccl,
                 "a libnccl.so.2 that the engines call, on host memory, instead of a communicator");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) std::exit(app.exit(e));  // --help
    fmt::print(stderr, "train: {}\ntrain: see 'train --help'\n", tutti::usage_error(app, e));
    std::exit(2);
  }
  o.shard = kShardings.at(shard);
  return o;
}

void Options::fit(int ranks) {
  shape.check();
  for (const auto& [name, value] : {std::pair{"dp", dp == 0 ? 1 : dp},
                                    {"tp", tp},
                                    {"pp", pp},
                                    {"cp", cp},
                                    {"cp-heads", cp_heads},
                                    {"ep", ep},
                                    {"replicas", replicas},
                                    {"micro-batches", micro_batches},
                                    {"steps", steps},
                                    {"threads", threads},
                                    {"report", report},
                                    {"every", every}}) {
    if (value < 1) refuse(fmt::format("--{} {}", name, value));
  }
  for (const auto& [name, value, most] : {std::tuple{"dp", dp, kMostRanks},
                                          {"tp", tp, kMostRanks},
                                          {"pp", pp, kMostRanks},
                                          {"threads", threads, kMostThreads}}) {
    if (value > most) refuse(fmt::format("--{} {} is more than {}", name, value, most));
  }
  for (const auto& [name, value] :
       {std::pair{"rate", rate}, {"decay", decay}, {"clip", clip}, {"balance", balance}}) {
    if (!(std::isfinite(value) && value >= 0)) {
      refuse(fmt::format("--{} {}: it is a number of 0 or more", name, value));
    }
  }
  const std::int64_t of_model = std::int64_t{tp} * pp;
  if (dp == 0) dp = static_cast<int>(std::max<std::int64_t>(ranks / of_model, 1));
  if (dp * of_model != ranks) {
    refuse(fmt::format("dp {} x tp {} x pp {} are {} ranks, and there are {}", dp, tp, pp,
                       dp * of_model, ranks));
  }
  if (dp % replicas != 0) refuse(fmt::format("{} replicas of {} dp ranks", replicas, dp));
  if (replicas > 1 && shard == Sharding::none) {
    refuse(
        "--replicas without --shard: plain data parallelism is nothing but "
        "replicas");
  }
  const std::int64_t of_data = std::int64_t{replicas} * cp * ep;
  if (dp % of_data != 0) {
    refuse(fmt::format("replicas {} x cp {} x ep {} of {} dp ranks", replicas, cp, ep, dp));
  }
  if (cp % cp_heads != 0) refuse(fmt::format("--cp-heads {} of {} cp ranks", cp_heads, cp));
  if (ep > 1 && (shape.experts == 0 || shape.experts % ep != 0)) {
    refuse(fmt::format("{} experts among {} ep ranks", shape.experts, ep));
  }
  if (shape.experts > 0 && tp > 1) {
    refuse("tensor-parallel ranks do not divide experts; use --ep in place of --tp");
  }
  if (!nccl.empty() && (cp > 1 || shape.experts > 0)) {
    refuse("--nccl carries neither the ring of --cp nor the rows of --experts");
  }
  if (alone && (tp > 1 || pp > 1 || cp > 1 || ep > 1 || shard != Sharding::none)) {
    refuse(
        "--alone leaves out the communication of data parallelism, with "
        "nothing else");
  }
  if (alone && !save.empty()) refuse("--alone has a model on each rank, and --save one of all");
  if (shape.heads % tp != 0) {
    refuse(fmt::format("{} heads among {} tensor-parallel ranks", shape.heads, tp));
  }
  if (shape.vocabulary % tp != 0) {
    refuse(fmt::format("{} tokens among {} tensor-parallel ranks", shape.vocabulary, tp));
  }
  if (shape.length % cp != 0) {
    refuse(fmt::format("a sequence of {} among {} cp ranks", shape.length, cp));
  }
  if (sequence && (tp == 1 || shape.length / cp % tp != 0)) {
    refuse(fmt::format("--sequence needs tp of 2 or more that divides the length, {}",
                       shape.length / cp));
  }
  if (batch < 1 || batch % (std::int64_t{dp / cp} * micro_batches) != 0) {
    refuse(fmt::format("{} sequences among dp {} x {} micro-batches; --batch says how many", batch,
                       dp / cp, micro_batches));
  }
  if (pp > 1 && tutti::parallel::pipeline::find_generator(schedule) == nullptr &&
      !std::filesystem::is_regular_file(schedule)) {
    refuse(
        fmt::format("there is no schedule {}, and no file of that name; `tutti schedule list` "
                    "has those that there are",
                    schedule));
  }
  if (pp > shape.layers + 2) {
    refuse(fmt::format("pp {} of {} layers", pp, shape.layers + 2));
  }
}

std::string Options::mix() const {
  std::string words = fmt::format("dp {}", dp);
  if (alone) words += " (no communication)";
  for (const auto& [name, value] : kShardings) {
    if (value == shard && shard != Sharding::none) words += fmt::format(" ({})", name);
  }
  if (replicas > 1) words += fmt::format(" in {} replicas", replicas);
  if (cp > 1) words += fmt::format(" with cp {}", cp);
  if (cp_heads > 1) words += fmt::format(" ({} by heads)", cp_heads);
  if (ep > 1) words += fmt::format(" with ep {}", ep);
  if (tp > 1) words += fmt::format(" x tp {}{}", tp, sequence ? " (sequence)" : "");
  if (pp > 1) words += fmt::format(" x pp {} ({})", pp, schedule);
  if (micro_batches > 1) words += fmt::format(", {} micro-batches", micro_batches);
  if (recompute) words += ", recomputing";
  return words;
}

}  // namespace train
