"""What workers and the controller say to each other: MessagePack arrays with a leading tag, never anything executable.

*Frames* travel between workers and carry tuples, markers and credits of *channels*: a channel joins one task to another
over one stream. Tuples and markers on a channel are numbered from 0 in each epoch, so that a receiver sees at once
whether any was lost or overtaken; only the marker of a move has no number of its own, as it says where others go. Every
frame carries its epoch; one of another epoch is dropped. *Tellings* go from a worker to the controller, *commands* the
other way, and *greetings* open every connection.
"""
