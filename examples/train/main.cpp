// Trains a small GPT on text, on all ranks, in any mix of data, sharded, tensor, sequence, expert
// and pipeline parallelism:
//
//     make train                         # four ranks, FSDP
//     build/bin/tutti run -n 4 build/bin/train --dp 2 --tp 2
//
// model.h is the model, text.h the data, options.h the mix, trainer.h a step.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "examples/train/elastic.h"
#include "examples/train/estimate.h"
#include "examples/train/trainer.h"
#include "parallel/agreement.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/gather_trace.h"
#include "tutti.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace train;

/// For what all ranks have traced; known to be possible before anything is trained.
std::ofstream trace_file(const Options& options, bool writes) {
  std::ofstream file;
  if (options.trace.empty() || !writes) return file;
  file.open(options.trace);
  if (file) return file;
  // A rank on its own: the others have to be told.
  throw tutti::Error(tutti::ErrorCode::system,
                     fmt::format("--trace {}: it cannot be written", options.trace));
}

/// What all ranks have traced. They all fail where rank 0 cannot write it.
void write_trace(std::ofstream& file, Ranks& ranks, const tutti::parallel::Trace& own,
                 const std::string& path) {
  try {
    tutti::parallel::gather_json(file, ranks.world(), own);
  } catch (const tutti::Error& e) {
    // Half a trace is none. (What is no file, /dev/full, stays.)
    std::error_code ignored;
    if (file.is_open() && std::filesystem::is_regular_file(path, ignored)) {
      file.close();
      std::filesystem::remove(path, ignored);
    }
    throw tutti::Error(e.code(), fmt::format("--trace {}: {}", path, e.what()), e.rank());
  }
}

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// Whether all ranks get the same error at the same time, so that nobody has to be told.
bool all_know(const tutti::Error& e) {
  return e.code() == tutti::ErrorCode::invalid_argument || e.code() == tutti::ErrorCode::mismatch ||
         e.code() == tutti::ErrorCode::unproven_plan;
}

/// The job's checkpoints, where it has any.
class Checkpoints {
 public:
  Checkpoints(const Options& options, Ranks& ranks, Parameters& parameters)
      : options_(options), parameters_(parameters) {
    if (!options.save.empty()) folder_.emplace(options.save, ranks.world());
  }
  /// The step from which the job goes on; 0: from the beginning. Collective.
  std::uint64_t resume() {
    if (!options_.resume) return 0;
    auto parts = parameters_.wanted();
    const auto step = folder_->load(parts);
    if (step) parameters_.loaded();
    return step.value_or(0);
  }
  /// Collective. Training goes on while the files are written.
  void after(int step, double loss) {
    if (!folder_ || (step % options_.every != 0 && step != options_.steps)) return;
    folder_->start(static_cast<std::uint64_t>(step), parameters_.saved(), texts(loss));
    if (step == options_.steps) folder_->wait();
  }
  /// Collective, after after(): nothing that was trained is lost when ranks meet anew.
  void before_meeting(int step, double loss) {
    if (step % options_.every == 0) return folder_->wait();
    folder_->save(static_cast<std::uint64_t>(step), parameters_.saved(), texts(loss));
  }

 private:
  tutti::parallel::CheckpointTexts texts(double loss) const {
    return {{"loss", fmt::format("{}", loss)}, {"mix", options_.mix()}};
  }

  const Options& options_;
  Parameters& parameters_;
  std::optional<tutti::parallel::CheckpointFolder> folder_;
};

/// Whether training is over: with a `job`, it ends early where other ranks are there.
bool train_on(Ranks& ranks, tutti::Communicator& world, const Options& options,
              tutti::ElasticJob* job) {
  const Text text(options.text);
  const std::string read = text.describe();
  tutti::parallel::agree(ranks.world(), "the text", {&read, 1});
  Trainer trainer(ranks, options);
  Checkpoints checkpoints(options, ranks, trainer.parameters());
  const int done = static_cast<int>(checkpoints.resume());
  const bool speaks = world.rank() == 0;
  std::ofstream traces = trace_file(options, speaks);
  const auto trace = std::make_shared<tutti::parallel::Trace>(world.rank());
  if (speaks) {
    fmt::print("{:.2f} M parameters, {} of {:.1f} MB of text a step; {}\n",
               static_cast<double>(options.shape.parameters()) / 1e6,
               fmt::format("{} sequences of {} B", options.batch, options.shape.length),
               static_cast<double>(text.size()) / 1e6, options.mix());
    if (options.resume) {
      if (done > 0) {
        fmt::print("{}: goes on after step {}\n", options.save, done);
      } else {
        fmt::print("{}: there is no checkpoint; from the beginning\n", options.save);
      }
    }
    if (const std::string line = estimate_line(options); !line.empty()) fmt::print("{}\n", line);
    fmt::print("{:>6} {:>8} {:>8} {:>10} {:>10} {:>10}\n", "step", "loss", "norm", "tokens/s",
               "exposed", "sent/step");
  }
  ranks.cost();
  auto from = Clock::now();
  for (int step = done + 1, before = done; step <= options.steps; ++step) {
    if (step == options.steps && !options.trace.empty()) trainer.trace(trace);
    const Trainer::Result result = trainer.step(text, static_cast<std::uint64_t>(step));
    checkpoints.after(step, result.loss);
    if (job != nullptr && step < options.steps && job->should_join(world)) {
      checkpoints.before_meeting(step, result.loss);
      return false;
    }
    if (step % options.report != 0 && step != options.steps && step != done + 1) continue;
    const auto now = Clock::now();
    const Ranks::Cost cost = ranks.cost();
    const double time = seconds(now - from);
    const double tokens =
        static_cast<double>((step - before) * options.batch * options.shape.length);
    if (speaks) {
      fmt::print("{:>6} {:>8.4f} {:>8} {:>10.0f} {:>9.1f}% {:>7.2f} MB\n", step, result.loss,
                 options.clip > 0 ? fmt::format("{:.3f}", result.norm) : "-", tokens / time,
                 100 * seconds(cost.waited) / time,
                 static_cast<double>(cost.sent) / (step - before) / 1e6);
      std::fflush(stdout);
    }
    before = step;
    from = now;
  }
  // The last checkpoint is whole before any rank ends well: after that no other one is started
  // again.
  if (job != nullptr) world.barrier();
  if (!options.trace.empty()) {
    write_trace(traces, ranks, *trace, options.trace);
    if (speaks) fmt::print("the last step: {} (ui.perfetto.dev shows it)\n", options.trace);
  }
  return true;
}

bool run(tutti::Communicator& world, const Options& options, tutti::ElasticJob* job = nullptr) {
  at::set_num_threads(options.threads);
  Ranks ranks(world, options);
  try {
    return train_on(ranks, world, options, job);
  } catch (const tutti::Error& e) {
    if (!all_know(e)) ranks.abort(e.what());
    throw;
  } catch (const c10::Error& e) {
    ranks.abort(e.what_without_backtrace());
    throw;
  } catch (const std::exception& e) {
    ranks.abort(e.what());
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options = parse_options(argc, argv);
  try {
    tutti::libtorch::check_version();
    tutti::Options settings;
    settings.invariant = settings.invariant || options.invariant;
    const auto agree = [&](tutti::Communicator& world) {
      // Else parts of different models would be trained as one.
      tutti::parallel::CommunicatorAxis ranks(world);
      tutti::parallel::agree(ranks, "the command line",
                             std::vector<std::string>(argv + 1, argv + argc));
    };
    if (is_elastic()) {
      train_elastic(options, settings,
                    [&](auto& world, const Options& fitted, tutti::ElasticJob& job) {
                      agree(world);
                      return run(world, fitted, &job);
                    });
      return 0;
    }
    auto world = tutti::Communicator::from_environment(settings);
    agree(world);
    options.fit(world.size());
    run(world, options);
  } catch (const c10::Error& e) {  // its what() has a backtrace
    std::fprintf(stderr, "train: %s\n", e.what_without_backtrace());
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train: %s\n", e.what());
    return 1;
  }
}
