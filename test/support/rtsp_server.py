"""GStreamer's RTSP server, for the system's Python: PORT WIDTHxHEIGHT [USER PASSWORD]; it serves /live."""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

if __name__ == "__main__":
    port, size, *login = sys.argv[1:]
    width, height = size.split("x")
    Gst.init(None)
    server = GstRtspServer.RTSPServer(address="127.0.0.1", service=port)
    factory = GstRtspServer.RTSPMediaFactory(shared=True)
    factory.set_launch(
        f"( videotestsrc is-live=true ! video/x-raw,width={width},height={height},framerate=30/1"
        " ! x264enc tune=zerolatency speed-preset=ultrafast key-int-max=15 ! rtph264pay name=pay0 pt=96 )"
    )
    if login:
        auth = GstRtspServer.RTSPAuth()
        token = GstRtspServer.RTSPToken()
        token.set_string("media.factory.role", "user")
        auth.add_basic(GstRtspServer.RTSPAuth.make_basic(*login), token)
        server.set_auth(auth)
        permissions = GstRtspServer.RTSPPermissions()
        permissions.add_permission_for_role("user", "media.factory.access", True)
        permissions.add_permission_for_role("user", "media.factory.construct", True)
        factory.set_permissions(permissions)
    server.get_mount_points().add_factory("/live", factory)
    server.attach(None)
    GLib.MainLoop().run()
