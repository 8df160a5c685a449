// Checkpoints: the state of a training job in files, which ranks write in parallel, and any other
// layout of ranks can load.
//
//     CheckpointFolder folder("run7", world);
//     for (each step) {
//       ...
//       if (step % 50 == 0) folder.save(step, parts, {{"loss", "2.31"}});
//     }
//     if (auto step = folder.load(parts, texts)) ...   // the newest one that is whole
//
// A checkpoint is a folder `step-0000000050` with a file of each rank (file.h). A rank's file gets
// its name when its bytes are on the disk. The checkpoint is whole when all of its files have
// names, so the last rename is the commit, and no rank has to tell another. A job that is killed at
// any time leaves the earlier checkpoints, and perhaps one that is not whole. Loading skips a
// checkpoint that is not whole, and one with a byte that has changed.
//
// Functions are collective unless they say otherwise. One thread at a time calls them. They throw
// tutti::Error, the same on all ranks where all of them can go on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../axis.h"
#include "part.h"

namespace tutti::parallel {

using CheckpointTexts = std::map<std::string, std::string>;

struct CheckpointOptions {
  // Steps whose whole checkpoints stay when a save begins (0 means 1); it removes older ones. When
  // it has ended there is one more.
  std::size_t keep = 2;
  /// Refuses a tensor of the checkpoint that no rank has asked for: a model of another size.
  bool all_tensors = true;
};

class CheckpointFolder {
 public:
  /// Makes the folder if there is none. `axis`: all ranks of the job; it outlives this.
  CheckpointFolder(std::string path, Axis& axis, CheckpointOptions options = {});
  /// Waits for a save that is under way; its error is logged.
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  /// Writes this rank's parts, and returns when they are on the disk. Ranks with copies save them
  /// once: a part that two ranks save is an error when it is loaded. `texts`: rank 0's are kept.
  void save(std::uint64_t step, std::span<const TensorPart> parts,
            const CheckpointTexts& texts = {});
  /// Copies the parts and returns; another thread writes the copy. The next save, wait() and the
  /// destructor wait for it.
  void start(std::uint64_t step, std::span<const TensorPart> parts,
             const CheckpointTexts& texts = {});
  /// Waits for what start() has begun, and throws its error. Does not communicate.
  void wait();
  /// Whether nothing is under way. Does not communicate, and does not block.
  bool idle() const;

  /// Fills in the parts from the newest checkpoint that is whole and right, and returns its step;
  /// no step if there is none. Ranks may ask for any parts, whatever ranks have saved them.
  std::optional<std::uint64_t> load(std::span<TensorPart> parts, CheckpointTexts* texts = nullptr);

 private:
  struct Writing;
  std::uint64_t begin(std::uint64_t step);
  void remove_old(std::uint64_t step) const;
  /// Throws Error(mismatch), on all ranks, for a tensor that none of them has asked for.
  void refuse_unasked(const std::map<std::string, bool>& asked, const std::string& file) const;
  std::string file_of(std::uint64_t step, std::uint64_t id) const;

  const std::string path_;
  Axis& axis_;
  const CheckpointOptions options_;
  std::unique_ptr<Writing> writing_;
};

/// The files of a whole checkpoint.
struct WholeCheckpoint {
  std::uint64_t step = 0;
  std::vector<std::string> files;  // by rank
};
/// The whole checkpoints of a folder, the newest first. A checkpoint is whole when all of its files
/// are there. Does not read them, nor communicate.
std::vector<WholeCheckpoint> whole_checkpoints(const std::string& path);

/// Fills in parts from the files, of Tutti's or of other programs. Throws Error(invalid_argument)
/// for a file that is not right, and Error(mismatch) for a tensor that is missing, or of another
/// type or shape. Returns, for each tensor of the files, whether a part has asked for it. Does not
/// communicate.
std::map<std::string, bool> read_parts(std::span<const std::string> files,
                                       std::span<TensorPart> parts,
                                       CheckpointTexts* texts = nullptr);

/// Writes a checkpoint as one file of whole tensors, for other programs. `name_of` may rename
/// tensors, or leave them out (""). Does not communicate; takes memory for all tensors.
void export_checkpoint(const WholeCheckpoint& checkpoint, const std::string& path,
                       const std::function<std::string(const std::string&)>& name_of = {});

}  // namespace tutti::parallel
