#include "bindings/mpi/world.h"

#include "bindings/mpi/error.h"
#include "comm/impl.h"

namespace tutti::mpi {

World::World(bool several) : several_(several) {
  Communicator job = Communicator::from_environment();
  mail_ = std::make_unique<Mail>(job, several);
  all_ = comm_of_job(std::move(job));
  self_ = comm_of_self(mail_->rank());
}

void World::close() {
  mail_->close();
  self_->tutti = {};
  all_->tutti.barrier();
  all_->tutti = {};
}

namespace {

/// Calls `waits` if no messages are under way, and says whether it did.
template <class Waits>
bool wait_away(Mail& mail, const Waits& waits) {
  const Mail::Away away(mail);
  if (away.leaves_messages()) return false;
  waits();
  return true;
}

}  // namespace

void run(Communicator& comm, const Call& call) {
  if (wait_away(world().mail(), [&] { comm.run(call); })) return;
  wait_for(comm.start(call), "a collective");
}

void wait_for(Future future, const char* what) {
  if (!future.valid()) return;
  Mail& mail = world().mail();
  if (wait_away(mail, [&] { future.wait(); })) return;
  future.on_ready([&mail] { mail.ring(); });
  mail.wait(what, [&] { return future.ready(); });
  future.wait();
}

}  // namespace tutti::mpi
