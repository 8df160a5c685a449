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

bool has_messages(Mail& mail) {
  const Mail::Lock lock(mail);
  return mail.is_busy();
}

}  // namespace

void run(Communicator& comm, const Call& call) {
  if (!has_messages(world().mail())) return comm.run(call);
  wait_for(comm.start(call), "a collective");
}

void wait_for(Future future, const char* what) {
  if (!future.valid()) return;
  Mail& mail = world().mail();
  constexpr auto kMoment = std::chrono::milliseconds(20);
  // Other threads may begin messages meanwhile, and leave them to this one.
  while (!future.ready() && mail.several() && !has_messages(mail)) future.wait_for(kMoment);
  if (!future.ready() && has_messages(mail)) {
    future.on_ready([&mail] { mail.ring(); });
    mail.wait(what, [&] { return future.ready(); });
  }
  future.wait();
}

}  // namespace tutti::mpi
