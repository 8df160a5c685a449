// What a process has from MPI_Init to MPI_Finalize: its place in the job, and its mail.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "bindings/mpi/communicator.h"
#include "bindings/mpi/mail.h"

namespace tutti::mpi {

class World {
 public:
  /// Collective over the job. `several`: threads share it (MPI_THREAD_MULTIPLE).
  explicit World(bool several);
  void close();

  Mail& mail() { return *mail_; }
  const CommRef& all() const { return all_; }
  const CommRef& self() const { return self_; }
  bool several() const { return several_; }

 private:
  bool several_;
  CommRef all_, self_;
  std::unique_ptr<Mail> mail_;
};

/// Between MPI_Init and MPI_Finalize. Throws Failure(MPI_ERR_OTHER) before and after.
World& world();
/// Null before and after.
World* world_or_null();

/// Runs a collective of Tutti's, and drives the mail meanwhile where messages of this rank are
/// under way: others may wait for them. (Those that other threads begin later are the postman's.)
void run(Communicator& comm, const Call& call);
/// Waits for a started one in the same way: where no messages are under way, this thread drives
/// what the rank has started. `what`: the procedure, for errors.
void wait_for(Future future, const char* what);
/// Runs `body`, which waits for others in calls of Tutti's. Messages are the postman's meanwhile.
template <class Body>
auto leaving_messages(const Body& body) {
  const Mail::Away away(world().mail());
  if (away.leaves_messages()) away.summon();
  return body();
}

}  // namespace tutti::mpi
