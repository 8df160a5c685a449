// What the ranks of a job agree on after a version: whether one of them has failed, and how.
#pragma once

#include <tutti/comm/communicator.h>
#include <tutti/core/error.h>

#include <optional>
#include <string_view>

namespace tutti::parallel::weights {

/// The error of rank `rank` of the "sending" or the "receiving" job: "rank 1 of the sending job
/// (peer_lost): ...".
Error named_error(const Error& error, int rank, std::string_view job);
/// The death that an error's text has, in the form of named_error(): another rank has heard of it
/// first.
std::optional<Error> death_in(const Error& error);

/// Collective over `job`, each rank with its error, if it has one. Returns the same on all ranks:
/// the most telling error, none if no rank has one. An error that names a dead rank says most, and
/// `aborted` says least. Throws the failure of `job` itself, a death in it, with `which`
/// ("sending", "receiving") in its text.
std::optional<Error> agree_on_outcome(Communicator& job, const std::optional<Error>& mine,
                                      std::string_view which);

}  // namespace tutti::parallel::weights
