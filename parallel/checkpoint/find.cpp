// See checkpoint.h: which checkpoints of the folder there are, and which of them can be loaded.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/log_line.h"
#include "parallel/agreement.h"
#include "parallel/checkpoint/agree.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/file.h"
#include "parallel/checkpoint/names.h"

namespace tutti::parallel {
namespace {

namespace fs = std::filesystem;

/// Those of a step's folder that are whole. There are several if a job was killed and came to the
/// same step again.
std::vector<WholeCheckpoint> whole_of(const fs::path& folder, std::uint64_t step) {
  std::map<std::pair<std::uint64_t, int>, std::map<int, std::string>> by_id;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(folder, gone)) {
    const auto name = file_name_of(entry.path().filename().string());
    if (name) by_id[{name->id, name->ranks}][name->rank] = entry.path().string();
  }
  std::vector<WholeCheckpoint> whole;
  for (auto& [id, files] : by_id) {
    if (files.size() != static_cast<std::size_t>(id.second)) continue;
    WholeCheckpoint& checkpoint = whole.emplace_back(WholeCheckpoint{.step = step, .files = {}});
    for (auto& [rank, file] : files) checkpoint.files.push_back(std::move(file));
  }
  // The newer one first.
  const auto written = [&](const WholeCheckpoint& c) {
    return fs::last_write_time(c.files.front(), gone);
  };
  std::ranges::stable_sort(whole, std::greater{}, written);
  return whole;
}

std::uint64_t id_of(const WholeCheckpoint& checkpoint) {
  return file_name_of(fs::path(checkpoint.files.front()).filename().string())->id;
}

}  // namespace

std::vector<WholeCheckpoint> whole_checkpoints(const std::string& path) {
  std::vector<std::pair<std::uint64_t, fs::path>> steps;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(path, none)) {
    if (const auto step = step_of(entry)) steps.emplace_back(*step, entry.path());
  }
  std::ranges::sort(steps, std::greater{});
  std::vector<WholeCheckpoint> all;
  for (const auto& [step, folder] : steps) {
    for (WholeCheckpoint& c : whole_of(folder, step)) all.push_back(std::move(c));
  }
  return all;
}

/// Rank 0 says which there are: a folder that hosts share may show others less, for a moment. Other
/// ranks get none.
std::vector<WholeCheckpoint> CheckpointFolder::whole_on_rank_0() const {
  std::vector<WholeCheckpoint> whole;
  on_all_ranks(axis_, [&] {
    if (axis_.rank() == 0) whole = whole_checkpoints(path_);
  });
  return whole;
}

/// Number `i` of what rank 0 passes, on all ranks; none: it has no such one.
std::optional<WholeCheckpoint> CheckpointFolder::of_rank_0(
    const std::vector<WholeCheckpoint>& whole, std::size_t i) const {
  std::uint64_t step = 0, ranks = 0, id = 0;
  if (i < whole.size()) {
    step = whole[i].step;
    ranks = whole[i].files.size();
    id = id_of(whole[i]);
  }
  Agreement all(axis_);
  id = all.largest(id);
  if (id == 0) return std::nullopt;
  WholeCheckpoint checkpoint{.step = all.largest(step), .files = {}};
  const SavedFiles files{step_folder(path_, checkpoint.step), static_cast<int>(all.largest(ranks)),
                         id};
  for (int r = 0; r < files.ranks; ++r) checkpoint.files.push_back(files.of(r));
  return checkpoint;
}

/// This rank's share, where all ranks together read a checkpoint.
std::vector<std::string> CheckpointFolder::share_of(const WholeCheckpoint& checkpoint) const {
  std::vector<std::string> own;
  const auto size = static_cast<std::size_t>(axis_.size());
  for (auto f = static_cast<std::size_t>(axis_.rank()); f < checkpoint.files.size(); f += size) {
    own.push_back(checkpoint.files[f]);
  }
  return own;
}

void CheckpointFolder::know(std::uint64_t id, std::span<const std::string> share, bool is_right) {
  Known& known = known_[id] = {.is_right = is_right, .share = {}};
  for (const std::string& file : share) known.share.push_back(stamp_of(file));
}

/// Whether it can be loaded, by any ranks. That is known of what this object has saved, or has
/// tried to load, as long as the files stay as they were. Else all ranks together read all of its
/// bytes.
bool CheckpointFolder::is_right(const WholeCheckpoint& checkpoint) {
  const std::uint64_t id = id_of(checkpoint);
  const std::vector<std::string> share = share_of(checkpoint);
  const auto known = known_.find(id);
  const bool has_changed =
      known == known_.end() || !std::ranges::equal(share, known->second.share, {}, stamp_of);
  if (Agreement(axis_).largest(has_changed ? 1 : 0) == 0) return known->second.is_right;
  std::vector<SavedPart> parts;
  auto error = gravest_error(axis_, [&] {
    for (const std::string& path : share) {
      TensorFile file(path);
      if (file.notes().id != id) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("{}: a file of another checkpoint", file.path()));
      }
      for (std::size_t p = 0; p < file.parts().size(); ++p) {
        file.verify(p);
        parts.push_back({file.notes().rank, file.parts()[p]});
      }
    }
  });
  if (error && error->code() != ErrorCode::invalid_argument) throw *error;
  if (!error) {
    try {
      agree_on_whole(axis_, parts);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::mismatch) throw;
      error = e;
    }
  }
  if (error && axis_.rank() == 0) {
    log_warning(fmt::format(
        "the checkpoint of step {} does not count as one to keep, as it cannot be loaded: {}",
        checkpoint.step, error->what()));
  }
  know(id, share, !error);
  return !error;
}

void CheckpointFolder::refuse_unasked(const std::map<std::string, bool>& asked,
                                      const std::string& file) const {
  // All ranks have read the same names.
  std::vector<std::uint8_t> by_any;
  for (const auto& [name, is_asked] : asked) by_any.push_back(is_asked ? 1 : 0);
  if (by_any.empty()) return;
  axis_.run(call_of(Collective::all_reduce, by_any.data(), by_any.data(), by_any.size(),
                    DataType::uint8, ReduceKind::max));
  const auto unasked = std::ranges::find(by_any, 0);
  if (unasked == by_any.end()) return;
  throw Error(ErrorCode::mismatch,
              fmt::format("the checkpoint of {} has a tensor '{}', and the job has none", file,
                          std::next(asked.begin(), unasked - by_any.begin())->first));
}

std::optional<std::uint64_t> CheckpointFolder::load(std::span<TensorPart> parts,
                                                    CheckpointTexts* texts) {
  on_all_ranks(axis_, [&] {
    wait();
    for (const TensorPart& p : parts) p.check();
  });
  const std::vector<WholeCheckpoint> whole = whole_on_rank_0();
  std::string damage;
  for (std::size_t i = 0;; ++i) {
    const auto checkpoint = of_rank_0(whole, i);
    if (!checkpoint) break;
    std::map<std::string, bool> asked;
    const auto error =
        gravest_error(axis_, [&] { asked = read_parts(checkpoint->files, parts, texts); });
    if (!error) {
      if (options_.all_tensors) refuse_unasked(asked, checkpoint->files.front());
      know(id_of(*checkpoint), share_of(*checkpoint), true);
      return checkpoint->step;
    }
    if (error->code() != ErrorCode::invalid_argument) throw *error;
    know(id_of(*checkpoint), share_of(*checkpoint), false);
    const std::string said = error->what();
    if (damage.empty()) damage = said;
    if (axis_.rank() == 0) {
      log_warning(
          fmt::format("the checkpoint of step {} is damaged, and the one before it is tried: {}",
                      checkpoint->step, said));
    }
  }
  if (damage.empty()) return std::nullopt;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("no checkpoint in {} is right; of the newest: {}", path_, damage));
}

}  // namespace tutti::parallel
