#include "examples/train/elastic.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace train {
namespace {

using namespace std::chrono_literals;
using tutti::Error;
using tutti::ErrorCode;

void check(const Options& o) {
  if (o.save.empty() || !o.resume) {
    throw Error(ErrorCode::invalid_argument,
                "under `tutti run --elastic` training needs --save and --resume: when ranks come "
                "or go, all go on from a checkpoint");
  }
  if (!o.nccl.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "--nccl does not go with `tutti run --elastic`: ranks that wait over NCCL do not "
                "hear of one that has died");
  }
}

/// Whether more ranks than these can help: the job has MAX places, and the mix can have as many.
bool may_grow(int ranks, Options options) {
  const char* const text = std::getenv("TUTTI_SIZE");
  const int places = text != nullptr ? std::atoi(text) : 0;
  if (ranks >= places) return false;
  try {
    options.fit(places);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Meets the ranks that are there, until there are as many as the mix can have.
Options meet(tutti::ElasticJob& job, tutti::Communicator& world, const Options& options,
             const tutti::Options& settings) {
  for (;;) {
    job.join(world, settings);
    try {
      Options fitted = options;
      fitted.fit(world.size());
      return fitted;
    } catch (const Error& e) {  // on all ranks
      if (!may_grow(world.size(), options)) throw;
      const auto begun = std::chrono::steady_clock::now();
      while (job.number() <= job.joined()) {
        if (std::chrono::steady_clock::now() - begun > settings.rendezvous_timeout) {
          throw Error(e.code(), fmt::format("{} ranks are left, and no other one has come: {}",
                                            world.size(), e.what()));
        }
        std::this_thread::sleep_for(20ms);
      }
    }
  }
}

}  // namespace

bool is_elastic() { return std::getenv("TUTTI_ELASTIC") != nullptr; }

void train_elastic(
    const Options& options, const tutti::Options& settings,
    const std::function<bool(tutti::Communicator&, const Options&, tutti::ElasticJob&)>& train) {
  check(options);
  tutti::ElasticJob job;
  tutti::Communicator world;
  for (bool is_over = false; !is_over;) {
    const Options fitted = meet(job, world, options, settings);
    const bool speaks = world.rank() == 0;
    try {
      is_over = train(world, fitted, job);
    } catch (const Error& e) {
      // A rank has died, or has given up because another one has.
      if (e.code() != ErrorCode::peer_lost && e.code() != ErrorCode::aborted) throw;
      if (speaks) fmt::print(stderr, "train: {}\ntrain: the others go on\n", e.what());
    }
  }
}

}  // namespace train
