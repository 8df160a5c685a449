#include "parallel/estimate/recommend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "core/error.h"

namespace tutti::parallel::estimate {
namespace {

std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) all.push_back(d);
  }
  return all;
}

std::size_t sequences_of(const Job& job) {
  if (job.sequences > 0) return job.sequences;
  return std::max<std::size_t>(1, (std::size_t{4} << 20) / job.length);
}

/// "FSDP x TP": the strategies, without their degrees.
std::string kind_of(const Mix& m) {
  std::string kind = m.pipeline > 1 ? "PP x " : "";
  if (m.stage == 0) {
    kind += "DDP";
  } else {
    kind += m.stage == 3 ? m.replicas > 1 ? "HSDP" : "FSDP" : fmt::format("ZeRO-{}", m.stage);
  }
  if (m.context > 1) kind += m.heads > 1 ? " with CP by heads" : " with CP";
  return kind + (m.experts > 1 ? " with EP" : "") + (m.tensor > 1 ? " x TP" : "");
}

bool is_possible(const Mix& mix, const Model& model) {
  try {
    check(mix, model);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Adds all mixes with the degrees of `mix`. In `mix`, all data-parallel ranks are shards.
void add_mixes(Mix mix, std::size_t sequences, std::vector<Mix>& all) {
  const int data = mix.data();
  const auto sharing = static_cast<std::size_t>(data / mix.context);
  if (sequences % sharing != 0) return;
  const std::size_t of_a_rank = sequences / sharing;
  for (const std::size_t each : {1, 2, 4, 8}) {
    // Ranks that have room for two sequences need not share one.
    if (of_a_rank % each != 0 || (each > 1 && mix.context > 1)) continue;
    mix.sequences = each;
    mix.micro_batches = of_a_rank / each;
    for (const bool recompute : {false, true}) {
      mix.recompute = recompute;
      for (int stage = 0; stage <= 3; ++stage) {
        if (stage > 0 && data == 1) continue;
        mix.stage = stage;
        // Replicas of shards pay where shards are in a host: for stage 3 alone.
        for (const int replicas : stage == 3 ? divisors(data) : std::vector<int>{1}) {
          mix.replicas = replicas;
          mix.shards = data / replicas;
          if (mix.shards == 1 && stage == 3) continue;
          if (mix.shards % mix.experts != 0) continue;
          all.push_back(mix);
        }
      }
    }
  }
}

/// Which of two is to be shown: what fits before what does not, then the faster, or the smaller.
bool better(const Estimate& a, const Estimate& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.memory.total() < b.memory.total();
  return a.time.total() < b.time.total();
}

std::vector<Estimate> pareto_of(std::vector<Estimate> all) {
  std::erase_if(all, [](const Estimate& e) { return !e.fits; });
  std::ranges::sort(all, {}, [](const Estimate& e) { return e.time.total(); });
  std::vector<Estimate> front;
  for (const Estimate& e : all) {
    if (front.empty() || e.memory.total() < front.back().memory.total()) front.push_back(e);
  }
  return front;
}

}  // namespace

std::vector<Mix> mixes(const Model& model, const Cluster& cluster, const Job& job) {
  const std::size_t sequences = sequences_of(job);
  std::vector<Mix> all;
  for (const int tensor : divisors(cluster.gpus_of_a_host)) {
    if (cluster.gpus % tensor != 0) continue;
    for (const int pipeline : divisors(cluster.gpus / tensor)) {
      const int data = cluster.gpus / tensor / pipeline;
      for (const int context : divisors(data)) {
        for (const int experts : model.experts > 0 ? divisors(data) : std::vector<int>{1}) {
          for (const int heads : divisors(context)) {
            const Mix mix{.shards = data,
                          .tensor = tensor,
                          .pipeline = pipeline,
                          .context = context,
                          .heads = heads,
                          .experts = experts,
                          .sequence = tensor > 1,
                          .precision = job.precision,
                          .length = job.length};
            // Heads are exchanged inside of a host.
            if (heads * tensor > cluster.gpus_of_a_host) continue;
            if (is_possible(mix, model)) add_mixes(mix, sequences, all);
          }
        }
      }
    }
  }
  return all;
}

Recommendation recommend(const Model& model, const Cluster& cluster, const Job& job) {
  std::vector<Estimate> all;
  std::map<std::string, Estimate> kinds;
  for (const Mix& mix : mixes(model, cluster, job)) {
    const Estimate& e = all.emplace_back(estimate(mix, model, cluster));
    const auto [kind, is_new] = kinds.try_emplace(kind_of(mix), e);
    if (!is_new && better(e, kind->second)) kind->second = e;
  }
  if (all.empty()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("no mix spreads {} sequences of {} over {} GPUs: their number divided "
                            "by data-parallel ranks has to be whole",
                            sequences_of(job), model.name, cluster.gpus));
  }
  Recommendation r;
  r.tried = all.size();
  for (const auto& [kind, e] : kinds) r.kinds.push_back(e);
  std::ranges::stable_sort(r.kinds, better);
  if (r.kinds.front().fits) {
    r.best = r.kinds.front();
  } else {
    Mix whole{.precision = job.precision, .length = job.length};
    r.gpus_needed =
        static_cast<std::size_t>(std::ceil(most_memory(whole, model).state() / cluster.memory));
  }
  r.pareto = pareto_of(std::move(all));
  return r;
}

}  // namespace tutti::parallel::estimate
