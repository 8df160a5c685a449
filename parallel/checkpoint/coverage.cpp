#include "parallel/checkpoint/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "core/error.h"

namespace tutti::parallel {
namespace {

void check_tensor(std::span<const SavedPart* const> saved) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::mismatch, why); };
  const auto& [first_rank, first] = *saved.front();
  std::vector<ElementRun> runs;
  for (const SavedPart* const s : saved) {
    const TensorPart& p = s->part;
    if (p.type != first.type || p.shape != first.shape) {
      refuse(fmt::format("rank {} saves tensor '{}' as {} of {}, and rank {} as {} of {}", s->rank,
                         p.name, name(p.type), text_of(p.shape), first_rank, name(first.type),
                         text_of(first.shape)));
    }
    p.for_each_run([&](std::size_t whole, std::size_t, std::size_t count) {
      runs.push_back({whole, whole + count, s->rank});
    });
  }
  const ElementRun all{0, elements_of(first.shape)};
  const auto fault = coverage_fault(std::move(runs), {&all, 1});
  if (!fault) return;
  const std::string what = fmt::format("{} of tensor '{}' of {}", text_of(fault->elements),
                                       first.name, text_of(first.shape));
  if (!fault->both) refuse(fmt::format("no rank saves {}", what));
  refuse(fmt::format("ranks {} and {} both save {}; only one of ranks with copies saves them",
                     fault->both->first, fault->both->second, what));
}

}  // namespace

std::string text_of(const ElementRun& run) {
  if (run.end - run.begin == 1) return fmt::format("element {}", run.begin);
  return fmt::format("elements {} to {}", run.begin, run.end - 1);
}

std::optional<CoverageFault> coverage_fault(std::vector<ElementRun> runs,
                                            std::span<const ElementRun> wanted) {
  std::ranges::sort(runs, {}, [](const ElementRun& r) { return std::pair(r.begin, r.end); });
  auto next = runs.begin();
  for (const ElementRun& all : wanted) {
    std::size_t at = all.begin;
    for (; next != runs.end() && next->begin < all.end; ++next) {
      if (next->begin > at) return CoverageFault{{at, next->begin}, {}};
      if (next->begin < at) {
        return CoverageFault{{next->begin, std::min(at, next->end)},
                             std::pair(std::prev(next)->by, next->by)};
      }
      at = next->end;
    }
    if (at < all.end) return CoverageFault{{at, all.end}, {}};
  }
  return std::nullopt;
}

void check_whole(std::span<const SavedPart> parts) {
  std::map<std::string_view, std::vector<const SavedPart*>> by_name;
  for (const SavedPart& p : parts) by_name[p.part.name].push_back(&p);
  for (const auto& [name, saved] : by_name) check_tensor(saved);
}

}  // namespace tutti::parallel
