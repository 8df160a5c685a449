// Where two jobs that were started apart leave texts for each other: how they find each other
// (meeting.h). The texts have secrets, so a place is as private as a unique id.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::parallel::weights {

/// The program may derive its own from this, over a store that its two jobs share. One process of
/// each job uses it, one thread at a time. Functions throw tutti::Error.
class Place {
 public:
  virtual ~Place() = default;
  /// Whoever reads `name` from now on gets `text`, all of it, and not what was there before.
  virtual void write(std::string_view name, std::string_view text) = 0;
  /// None: nothing is there.
  virtual std::optional<std::string> read(std::string_view name) = 0;
  virtual void remove(std::string_view name) = 0;
};

/// A folder of a file system that both jobs see; it is made, for its owner alone, where there is
/// none. Throws Error(system) where that cannot be.
std::shared_ptr<Place> folder_place(const std::string& path);

}  // namespace tutti::parallel::weights
