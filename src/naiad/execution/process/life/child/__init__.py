"""One child process as the system sees it: started, talked to, listened to, watched."""
