// How TCP sockets between hosts behave.
#pragma once

#include <chrono>
#include <string>

#include "transport/sockets/socket.h"

namespace tutti {

/// What tune_socket() comes to here.
std::string congestion_control_in_use();
/// Throws Error(invalid_argument), with what there is, where this host's kernel cannot do, or does
/// not allow, what TUTTI_TCP_CONGESTION asks for.
void check_congestion_control();

/// No delays; the congestion control that TUTTI_TCP_CONGESTION asks for. Best effort.
void tune_socket(const FileDescriptor& socket);
/// How long nothing has to come from another host for its ranks to be lost: longer than
/// TUTTI_PEER_TIMEOUT, by as much as TCP may take to ask once more, so that an outage of that
/// length is survived. 0: for ever.
std::chrono::milliseconds silence_limit();
/// From now on the connection ends when the other host has not answered for silence_limit(). Not
/// for a socket with a reader that may be slow: a full window counts as no answer.
void watch_over(int fd);
void stop_watching_over(int fd);
/// watch_over() that also asks while the connection is idle: for one that takes a way of its own,
/// whose end no other connection notices.
void watch_over_idle(int fd);

/// Acknowledges now what has come: a peer that leaves waits for that alone, and the kernel, with
/// nothing to send it along with, waits 40 ms.
void acknowledge(int fd);
/// Whether the other end's system has all that was sent, or never will have it.
bool has_delivered(int fd);
/// Whether nothing more comes from the other end.
bool has_hung_up(int fd);
/// Whether nothing more comes from the other end, and all that came has been read.
bool has_ended(int fd);

/// Begins to connect from `from` (its port is ignored); an empty socket, with errno, where that
/// fails at once. Writable when it is decided. Watched over.
FileDescriptor begin_to_connect(const SocketAddress& address, const SocketAddress& from);

}  // namespace tutti
